//! How the texts below each help are set: as wide as the terminal is, whatever width they have in the source.
//!
//! Owns that a paragraph is one paragraph and an example one line. clap sets the rest in the same way.

use clap::Command;

/// The same command, with texts that fit any width, and its subcommands too.
pub fn set(command: Command) -> Command {
    let text = command.get_after_help().map(|text| unfolded(&text.to_string()));
    let command = match text {
        Some(text) => command.after_help(text),
        None => command,
    };
    let names: Vec<String> = command.get_subcommands().map(|sub| sub.get_name().to_owned()).collect();
    names.into_iter().fold(command, |command, name| command.mut_subcommand(name, set))
}

/// Lines that follow each other are one paragraph; a line that is set in, or follows one, stands by itself.
fn unfolded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut before = "";
    for line in text.lines() {
        let goes_on = !(before.is_empty() || line.is_empty() || line.starts_with(' ') || before.starts_with(' '));
        if !out.is_empty() || !before.is_empty() {
            out.push(if goes_on { ' ' } else { '\n' });
        }
        out.push_str(line);
        before = line;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn each(command: &Command, path: &str, look: &mut dyn FnMut(&str, &Command)) {
        look(path, command);
        for sub in command.get_subcommands().filter(|sub| sub.get_name() != "help") {
            each(sub, &format!("{path} {}", sub.get_name()), look);
        }
    }

    #[test]
    fn paragraphs_are_set_to_any_width_and_examples_stay_lines() {
        let text = "Examples:\n  one\n  two\n\nA paragraph\nin two lines:\n  three\nAnother one.";
        assert_eq!(unfolded(text), "Examples:\n  one\n  two\n\nA paragraph in two lines:\n  three\nAnother one.");
    }

    #[test]
    fn every_help_has_an_example_and_fits_a_terminal_of_80_100_and_120_columns() {
        let mut faults = Vec::new();
        for width in [80, 100, 120] {
            let mut all = set(crate::cli::CommandLine::command()).term_width(width);
            all.build();
            each(&all, "dispatcher", &mut |path, command| {
                let shown = command.clone().term_width(width).render_long_help().to_string();
                let wide = shown.lines().filter(|line| line.chars().count() > width);
                faults.extend(wide.map(|line| format!("{path} --help at {width}: {line}")));
                // An example that is broken cannot be copied.
                let examples = shown.lines().filter(|line| line.trim_start().starts_with("dispatcher ")).count();
                let meant = command.get_after_help().map(ToString::to_string).unwrap_or_default();
                let meant = meant.lines().filter(|line| line.starts_with("  "));
                faults
                    .extend(meant.clone().filter(|line| line.len() > 80).map(|line| format!("{path}: broken: {line}")));
                let own = path.split_whitespace().last().unwrap_or_default();
                if !meant.clone().next().is_some_and(|line| line.contains(own)) {
                    faults.push(format!("{path} --help begins with an example of something else"));
                }
                if meant.count() == 0 || examples == 0 {
                    faults.push(format!("{path} --help has no example"));
                }
            });
        }
        assert!(faults.is_empty(), "{}", faults.join("\n"));
    }
}
