//! One Rust source as tokens, comments and test code.
//!
//! **Owns** the split of a file into what the compiler reads and what people read. **Refuses to know** what the checks
//! make of it. **Invariant**: tokens and comments are in the order of the file, and a text within a string literal is
//! neither.

use std::ops::Range;

use proc_macro2::{Delimiter, Span, TokenStream, TokenTree};

/// A token with the line it starts on, counted from 1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Token {
    pub(crate) text: String,
    pub(crate) line: usize,
    pub(crate) kind: TokenKind,
}

/// As much of a token's nature as the checks ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TokenKind {
    Word,
    Mark,
    Literal,
}

/// One line of a comment, without its slashes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Comment {
    pub(crate) text: String,
    pub(crate) line: usize,
    /// `//!`: it speaks of the module it stands in.
    pub(crate) inner_doc: bool,
}

/// A lexed file.
#[derive(Debug, Default)]
pub(crate) struct Rust {
    pub(crate) tokens: Vec<Token>,
    pub(crate) comments: Vec<Comment>,
    test_lines: Vec<Range<usize>>,
    all_test: bool,
}

impl Rust {
    /// Lexes a file; the error is what the lexer stumbled over. `path` decides whether the file is test code as a whole.
    pub(crate) fn parse(path: &str, text: &str) -> Result<Self, String> {
        let stream: TokenStream = text.parse().map_err(|error| format!("{error}"))?;
        let mut flat = Flat { text, tokens: Vec::new(), comments: Vec::new(), read_to: 0, line: 1 };
        flat.walk(stream);
        flat.gap(text.len());
        let mut rust =
            Self { tokens: flat.tokens, comments: flat.comments, test_lines: Vec::new(), all_test: is_test_path(path) };
        rust.test_lines = rust.find_test_modules();
        Ok(rust)
    }

    /// True for a line of test code: in a test file, or in a `#[cfg(test)]` module.
    pub(crate) fn is_test(&self, line: usize) -> bool {
        self.all_test || self.test_lines.iter().any(|range| range.contains(&line))
    }

    /// Where `words` stand one after another among the tokens; the answer is the index of the first of them.
    pub(crate) fn find<'a>(&'a self, words: &'a [&str]) -> impl Iterator<Item = usize> + 'a {
        self.tokens
            .windows(words.len().max(1))
            .enumerate()
            .filter(move |(_, window)| window.iter().map(|token| token.text.as_str()).eq(words.iter().copied()))
            .map(|(index, _)| index)
    }

    fn find_test_modules(&self) -> Vec<Range<usize>> {
        self.find(&["#", "[", "cfg", "(", "test", ")", "]"])
            .filter_map(|start| {
                let open =
                    self.tokens.iter().skip(start + 7).position(|token| token.text == "{" || token.text == ";")?;
                let open = start + 7 + open;
                let close = if self.tokens[open].text == "{" { self.matching_brace(open)? } else { open };
                Some(self.tokens[start].line..self.tokens[close].line + 1)
            })
            .collect()
    }

    /// The index of the brace that closes the one at `open`.
    pub(crate) fn matching_brace(&self, open: usize) -> Option<usize> {
        let mut depth = 0_usize;
        for (index, token) in self.tokens.iter().enumerate().skip(open) {
            match token.text.as_str() {
                "{" => depth += 1,
                "}" => {
                    depth = depth.checked_sub(1)?;
                    if depth == 0 {
                        return Some(index);
                    }
                }
                _ => {}
            }
        }
        None
    }
}

fn is_test_path(path: &str) -> bool {
    path.contains("/tests/") || path.ends_with("/tests.rs") || path.ends_with("_tests.rs")
}

/// Flattens a token tree, and reads what lies between two tokens as comments.
struct Flat<'a> {
    text: &'a str,
    tokens: Vec<Token>,
    comments: Vec<Comment>,
    read_to: usize,
    line: usize,
}

impl Flat<'_> {
    fn walk(&mut self, stream: TokenStream) {
        let mut trees = stream.into_iter().peekable();
        while let Some(tree) = trees.next() {
            match tree {
                TokenTree::Group(group) => {
                    let (open, close) = match group.delimiter() {
                        Delimiter::Parenthesis => ("(", ")"),
                        Delimiter::Brace => ("{", "}"),
                        Delimiter::Bracket => ("[", "]"),
                        Delimiter::None => ("", ""),
                    };
                    self.push(open, group.span_open(), TokenKind::Mark);
                    self.walk(group.stream());
                    self.push(close, group.span_close(), TokenKind::Mark);
                }
                // A doc comment arrives as the attribute it stands for, each token of it as wide as the comment.
                TokenTree::Punct(punct) if punct.as_char() == '#' && punct.span().byte_range().len() > 1 => {
                    self.gap(punct.span().byte_range().end);
                    if matches!(trees.peek(), Some(TokenTree::Punct(bang)) if bang.as_char() == '!') {
                        trees.next();
                    }
                    trees.next();
                }
                TokenTree::Punct(punct) => self.push(&punct.as_char().to_string(), punct.span(), TokenKind::Mark),
                TokenTree::Ident(ident) => self.push(&ident.to_string(), ident.span(), TokenKind::Word),
                TokenTree::Literal(literal) => self.push(&literal.to_string(), literal.span(), TokenKind::Literal),
            }
        }
    }

    fn push(&mut self, text: &str, span: Span, kind: TokenKind) {
        let range = span.byte_range();
        self.gap(range.start);
        self.tokens.push(Token { text: text.to_owned(), line: self.line, kind });
        self.advance(range.end);
    }

    /// Reads the text up to `end`, which holds nothing but white space and comments.
    fn gap(&mut self, end: usize) {
        let gap = self.text.get(self.read_to..end).unwrap_or_default();
        let mut in_block = false;
        for (offset, raw) in gap.split('\n').enumerate() {
            let line = raw.trim();
            if !in_block && line.is_empty() {
                continue;
            }
            let inner_doc = line.starts_with("//!") || line.starts_with("/*!");
            in_block = (in_block || line.starts_with("/*")) && !line.ends_with("*/");
            let text = line.trim_start_matches(['/', '*', '!']).trim_end_matches("*/").trim().to_owned();
            self.comments.push(Comment { text, line: self.line + offset, inner_doc });
        }
        self.advance(end);
    }

    fn advance(&mut self, end: usize) {
        let passed = self.text.get(self.read_to..end).unwrap_or_default();
        self.line += passed.matches('\n').count();
        self.read_to = self.read_to.max(end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_code_are_told_apart_from_strings() {
        let text =
            "//! About.\n\n/// Doc.\nfn f() -> &'static str {\n    // why\n    \"// not a comment\"\n}\n/* a\n b */\n";
        let rust = Rust::parse("crates/a/src/lib.rs", text).unwrap();
        let seen: Vec<_> = rust.comments.iter().map(|c| (c.text.as_str(), c.line, c.inner_doc)).collect();
        assert_eq!(
            seen,
            [("About.", 1, true), ("Doc.", 3, false), ("why", 5, false), ("a", 8, false), ("b", 9, false)]
        );
        assert!(rust.tokens.iter().any(|t| t.text == "\"// not a comment\"" && t.line == 6));
        assert_eq!(rust.tokens[0].text, "fn");
        assert_eq!(rust.tokens[0].line, 4);
    }

    #[test]
    fn a_test_module_is_known_by_its_attribute_and_a_test_file_by_its_path() {
        let text = "fn a() {}\n#[cfg(test)]\nmod tests {\n    fn b() {}\n}\nfn c() {}\n";
        let rust = Rust::parse("crates/a/src/lib.rs", text).unwrap();
        let test: Vec<_> = (1..=6).filter(|line| rust.is_test(*line)).collect();
        assert_eq!(test, [2, 3, 4, 5]);
        assert!(Rust::parse("crates/a/tests/it.rs", text).unwrap().is_test(1));
        assert!(Rust::parse("crates/a/src/slot/tests.rs", text).unwrap().is_test(1));
    }

    #[test]
    fn a_sequence_of_tokens_is_found_whatever_the_spacing() {
        let rust = Rust::parse("crates/a/src/lib.rs", "use std :: fs;\nfn f() { std::fs::read(1) }").unwrap();
        let lines: Vec<_> = rust.find(&["std", ":", ":", "fs"]).map(|at| rust.tokens[at].line).collect();
        assert_eq!(lines, [1, 2]);
    }

    #[test]
    fn a_file_that_does_not_lex_is_an_error_and_not_a_panic() {
        assert!(Rust::parse("crates/a/src/lib.rs", "fn f( {").is_err());
    }
}
