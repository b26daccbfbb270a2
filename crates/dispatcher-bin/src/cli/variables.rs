//! A wrong value that a variable gave is told as the variable's: whoever wrote no flag looks for none.

use clap::error::{ContextKind, ContextValue};
use clap::{Command, CommandFactory, Error};
use std::ffi::OsString;

/// The same error, with the variable in place of the flag where the command line does not have the flag.
pub fn named(error: Error) -> Error {
    let said: Vec<OsString> = std::env::args_os().skip(1).collect();
    in_place_of_the_flag(error, &said, |name| std::env::var_os(name))
}

fn in_place_of_the_flag(mut error: Error, said: &[OsString], variable: impl Fn(&str) -> Option<OsString>) -> Error {
    let Some(ContextValue::String(argument)) = error.get(ContextKind::InvalidArg) else { return error };
    let Some(flag) = argument.split_whitespace().next() else { return error };
    let Some((short, env)) = variable_of(&super::CommandLine::command(), flag) else { return error };
    let is_said = |word: &OsString| {
        let word = word.to_string_lossy();
        let by_letter = short.is_some_and(|short| !word.starts_with("--") && word.starts_with(&format!("-{short}")));
        word == flag || word.starts_with(&format!("{flag}=")) || by_letter
    };
    if variable(&env).is_some() && !said.iter().any(is_said) {
        error.insert(ContextKind::InvalidArg, ContextValue::String(env));
    }
    error
}

/// The letter and the variable of a flag, which are the same in every command.
fn variable_of(command: &Command, flag: &str) -> Option<(Option<char>, String)> {
    let long = flag.strip_prefix("--")?;
    let own = command.get_arguments().find(|arg| arg.get_long() == Some(long) && arg.get_env().is_some());
    let own = own.and_then(|arg| Some((arg.get_short(), arg.get_env()?.to_str()?.to_owned())));
    own.or_else(|| command.get_subcommands().find_map(|sub| variable_of(sub, flag)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_value_is_told_as_the_variables_unless_the_flag_was_given() {
        let told = |line: &str, set: &str| {
            let words: Vec<OsString> = line.split(' ').map(Into::into).collect();
            let error = super::super::CommandLine::command().try_get_matches_from(&words).unwrap_err();
            let variable = |name: &str| (name == set).then(|| OsString::from("x"));
            in_place_of_the_flag(error, words.get(1..).unwrap(), variable).to_string()
        };
        let by_flag = told("dispatcher run d --exec c --slots x", "DISPATCHER_SLOTS");
        assert!(by_flag.contains("--slots <N>"), "{by_flag}");
        assert!(told("dispatcher run d --exec c -sx", "DISPATCHER_SLOTS").contains("--slots <N>"));
        // What clap says is the same wherever the value comes from; here the flag stands where nobody looks for it.
        let error = super::super::CommandLine::command()
            .try_get_matches_from(["dispatcher", "run", "d", "--exec", "c", "--slots", "x"])
            .unwrap_err();
        let words = ["run", "d", "--exec", "c"].map(OsString::from);
        let by_variable = in_place_of_the_flag(error, &words, |_| Some("x".into())).to_string();
        assert!(by_variable.contains("'x' for 'DISPATCHER_SLOTS'"), "{by_variable}");
        assert!(!by_variable.contains("--slots"), "{by_variable}");
    }
}
