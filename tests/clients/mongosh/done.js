print('done ' + reported);
