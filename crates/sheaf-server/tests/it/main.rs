//! Tests of the server in this process: no socket, no child process.

mod command_table;
mod in_process;
mod manual;
mod privileges;
