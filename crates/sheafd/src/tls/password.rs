//! Asks for the password of an encrypted key on the terminal.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::AsRawFd;

use super::options::{Password, TlsOptions};
use super::pem;

/// Asks for the password of the server's key, if the key is encrypted and no option has the
/// password. Called before the process goes to the background, where it has no terminal.
///
/// Without a terminal nothing happens: reading the key reports that a password is missing.
pub fn ask_for_password(options: &mut TlsOptions) {
    let file = &options.certificate_key_file;
    if options.password.is_none() && pem::has_encrypted_key(file) {
        let prompt = format!("Password of the private key in {}: ", file.display());
        options.password = ask(&prompt).ok().map(Password);
    }
}

/// Reads one line from the terminal, which does not show it.
fn ask(prompt: &str) -> io::Result<String> {
    let mut terminal = File::options().read(true).write(true).open("/dev/tty")?;
    let echo = Echo::off(&terminal)?;
    terminal.write_all(prompt.as_bytes())?;
    let mut line = String::new();
    let read = BufReader::new(&terminal).read_line(&mut line);
    drop(echo);
    terminal.write_all(b"\n")?;
    read?;
    Ok(line.trim_end_matches(['\n', '\r']).to_owned())
}

/// Switches the echo of a terminal on again when dropped.
struct Echo {
    terminal: i32,
    before: libc::termios,
}

impl Echo {
    fn off(terminal: &File) -> io::Result<Echo> {
        let terminal = terminal.as_raw_fd();
        let mut before = std::mem::MaybeUninit::<libc::termios>::uninit();
        // SAFETY: the pointer is to a variable of the type that the call expects.
        if unsafe { libc::tcgetattr(terminal, before.as_mut_ptr()) } != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the call above succeeded, and has initialised it.
        let before = unsafe { before.assume_init() };
        let mut silent = before;
        silent.c_lflag &= !libc::ECHO;
        // SAFETY: the pointer is to an initialised variable of that type.
        match unsafe { libc::tcsetattr(terminal, libc::TCSAFLUSH, &silent) } {
            0 => Ok(Echo { terminal, before }),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        // SAFETY: the pointer is to an initialised variable of that type; the file is open, since
        // its owner outlives this value.
        unsafe {
            libc::tcsetattr(self.terminal, libc::TCSAFLUSH, &self.before);
        }
    }
}
