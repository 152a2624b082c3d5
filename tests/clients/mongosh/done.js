print('done ' + told);
