//! What is generated from the table of options and the commands: the reference page, the manual
//! page and shell completions.

mod markdown;

use clap::Command;
use clap_complete::Shell;

use crate::{
    command_line,
    failure::{Failure, Outcome},
};

pub(crate) use markdown::Page;

/// A completion script.
pub(crate) fn completions(mut program: Command, shell: Shell) -> String {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut program, "penstock", &mut script);
    String::from_utf8_lossy(&script).into_owned()
}

/// A manual page in roff.
pub(crate) fn man(command: Command) -> Outcome<String> {
    let mut page = Vec::new();
    clap_mangen::Man::new(command_line::with_every_option(command))
        .manual("Penstock")
        .render(&mut page)
        .map_err(|error| {
            Failure::new(format!("cannot write the manual: {error}"), "report this")
        })?;
    Ok(String::from_utf8_lossy(&page).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        commands,
        options::{Scope, table},
    };

    #[test]
    fn every_shell_gets_a_script_with_every_option() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let script = completions(commands::program(), shell);
            for spec in [&table::MEMORY, &table::ALLOW_OTHER, &table::FUSE_THREADS] {
                assert!(script.contains(spec.name), "{shell}: {}", spec.name);
            }
        }
    }

    #[test]
    fn the_manual_of_mount_has_every_option() {
        let program = commands::program();
        let mount = program.find_subcommand("mount").expect("a command").clone();
        let page = man(mount).expect("rendered");
        for spec in table::of(Scope::Mount).filter(|spec| spec.name.len() > 3) {
            let escaped = spec.name.replace('-', "\\-");
            let hidden = spec.accepts == crate::options::Accepts::Privately;
            assert_eq!(page.contains(&escaped), !hidden, "{}", spec.name);
        }
    }
}
