//! Console blocks of a Markdown document: commands, and what they are said to print.
//!
//! **Owns** the form: a block fenced as `console`, `$ ` before a command, `> ` before each further line of it, everything
//! else is what it prints. **Refuses to know** how a command is run.

use anyhow::{Result, bail};

/// One command and what it is said to print.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Exchange {
    /// Where the command stands in the document, counted from 1.
    pub(super) line: usize,
    pub(super) command: String,
    pub(super) expected: String,
    /// The lines of `expected` in the document, counted from 0.
    answer: std::ops::Range<usize>,
}

/// All exchanges of a document, in its order.
///
/// # Errors
/// Fails for a block that opens with something else than a command, and for one that is not closed.
pub(super) fn read(text: &str) -> Result<Vec<Exchange>> {
    let mut exchanges: Vec<Exchange> = Vec::new();
    let mut fence = None;
    let mut opened = 0;
    for (index, line) in text.lines().enumerate() {
        match fence {
            None if line.starts_with("```") => {
                fence = Some(line.trim() == "```console");
                opened = exchanges.len();
            }
            Some(_) if line.trim_end() == "```" => fence = None,
            Some(true) => {
                if let Some(command) = line.strip_prefix("$ ") {
                    let (command, answer) = (command.to_owned(), index + 1..index + 1);
                    exchanges.push(Exchange { line: index + 1, command, expected: String::new(), answer });
                    continue;
                }
                let Some(current) = exchanges.get_mut(opened..).and_then(<[Exchange]>::last_mut) else {
                    bail!("line {}: the block opens with `{line}` instead of `$ command`", index + 1);
                };
                match line.strip_prefix("> ") {
                    Some(more) if current.answer.is_empty() => {
                        current.command.push('\n');
                        current.command.push_str(more);
                        current.answer = index + 1..index + 1;
                    }
                    _ => {
                        current.expected.push_str(line);
                        current.expected.push('\n');
                        current.answer.end = index + 1;
                    }
                }
            }
            _ => {}
        }
    }
    if fence.is_some() {
        bail!("the last code block is not closed");
    }
    Ok(exchanges)
}

/// The document with the answers that are given put in the place of what it says.
pub(super) fn write(text: &str, exchanges: &[Exchange], answers: &[Option<String>]) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let mut out = String::with_capacity(text.len());
    let mut next = 0;
    let copy = |range: std::ops::Range<usize>, out: &mut String| {
        for line in lines.get(range).unwrap_or_default() {
            out.push_str(line);
            out.push('\n');
        }
    };
    for (exchange, answer) in exchanges.iter().zip(answers) {
        if let Some(answer) = answer {
            copy(next..exchange.answer.start, &mut out);
            out.push_str(answer);
            if !answer.is_empty() && !answer.ends_with('\n') {
                out.push('\n');
            }
            next = exchange.answer.end;
        }
    }
    copy(next..lines.len(), &mut out);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str =
        "# A\n```sh\n$ not this\n```\n```console\n$ one \\\n> two\nout 1\nout 2\n$ three\n$ four\nout 4\n```\nEnd.\n";

    #[test]
    fn commands_and_what_they_print_are_read_from_console_blocks_alone() {
        let seen = read(TEXT).unwrap();
        let seen: Vec<_> = seen.iter().map(|e| (e.line, e.command.as_str(), e.expected.as_str())).collect();
        assert_eq!(seen, [(6, "one \\\ntwo", "out 1\nout 2\n"), (10, "three", ""), (11, "four", "out 4\n")]);
    }

    #[test]
    fn a_new_answer_takes_the_place_of_the_old_one_and_nothing_else_moves() {
        let exchanges = read(TEXT).unwrap();
        let written = write(TEXT, &exchanges, &[Some("new".into()), Some("more\n".into()), None]);
        assert_eq!(written, TEXT.replace("out 1\nout 2\n$ three\n", "new\n$ three\nmore\n"));
        assert_eq!(write(TEXT, &exchanges, &[None, None, None]), TEXT);
    }

    #[test]
    fn a_block_that_cannot_be_read_is_an_error() {
        assert!(read("```console\nno command\n```\n").is_err());
        assert!(read("```console\n$ ok\n").is_err());
        assert!(read("```console\n$ ok\n```\n```console\nno command\n```\n").is_err());
    }
}
