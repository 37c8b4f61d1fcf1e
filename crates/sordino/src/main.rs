//! The command `sordino`.
#![forbid(unsafe_code)]

use std::{env, process::ExitCode};

fn main() -> ExitCode {
    sordino::cli::main(env::args_os()).into()
}
