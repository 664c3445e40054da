//! Just enough of Rust's grammar to tell code from comments and strings.
//!
//! [`blank`] returns text of the same length and the same lines, in which every comment and the
//! inside of every string or character literal is spaces. Rules about code then search plain
//! text, and offsets and line numbers stay true.

/// `source` with comments and literals blanked.
pub(super) fn blank(source: &str) -> String {
    let mut lexer = Lexer {
        source: source.as_bytes(),
        output: Vec::with_capacity(source.len()),
    };
    while lexer.position() < lexer.source.len() {
        lexer.step();
    }
    String::from_utf8(lexer.output).expect("blanking replaces whole literals by ASCII")
}

/// The offset just behind the bracket that closes the one at `open`, in blanked text.
pub(super) fn matching_end(code: &str, open: usize) -> Option<usize> {
    let mut depth = 0usize;
    for (offset, byte) in code.bytes().enumerate().skip(open) {
        match byte {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.checked_sub(1)?,
            _ => {}
        }
        if depth == 0 {
            return Some(offset + 1);
        }
    }
    None
}

/// The one-based line of a byte offset.
pub(super) fn line_of(text: &str, offset: usize) -> usize {
    text.as_bytes()[..offset]
        .iter()
        .filter(|byte| **byte == b'\n')
        .count()
        + 1
}

/// Whether a byte may be part of an identifier.
pub(super) fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80
}

struct Lexer<'a> {
    source: &'a [u8],
    output: Vec<u8>,
}

impl Lexer<'_> {
    fn position(&self) -> usize {
        self.output.len()
    }

    fn rest(&self) -> &[u8] {
        &self.source[self.position()..]
    }

    /// Consumes one comment, literal or byte of code.
    fn step(&mut self) {
        let rest = self.rest();
        if rest.starts_with(b"//") {
            self.blank_bytes(line_comment_length(rest));
        } else if rest.starts_with(b"/*") {
            self.blank_bytes(block_comment_length(rest));
        } else if let Some(length) = raw_string_length(rest).filter(|_| !self.is_inside_word()) {
            self.blank_bytes(length);
        } else if rest[0] == b'"' {
            self.blank_bytes(quoted_length(rest, b'"'));
        } else if let Some(length) = character_length(rest) {
            self.blank_bytes(length);
        } else {
            self.output.push(rest[0]);
        }
    }

    fn is_inside_word(&self) -> bool {
        self.output.last().is_some_and(|byte| is_word(*byte))
    }

    fn blank_bytes(&mut self, count: usize) {
        let start = self.position();
        for byte in &self.source[start..start + count] {
            self.output.push(if *byte == b'\n' { b'\n' } else { b' ' });
        }
    }
}

fn line_comment_length(text: &[u8]) -> usize {
    text.iter()
        .position(|byte| *byte == b'\n')
        .unwrap_or(text.len())
}

/// Block comments nest.
fn block_comment_length(text: &[u8]) -> usize {
    let mut depth = 0usize;
    let mut at = 0;
    while at < text.len() {
        if text[at..].starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if text[at..].starts_with(b"*/") {
            depth -= 1;
            at += 2;
        } else {
            at += 1;
        }
        if depth == 0 {
            return at;
        }
    }
    text.len()
}

/// The length of a literal that starts and ends with `quote` and knows backslashes.
fn quoted_length(text: &[u8], quote: u8) -> usize {
    let mut at = 1;
    while at < text.len() {
        match text[at] {
            b'\\' => at += 2,
            byte if byte == quote => return at + 1,
            _ => at += 1,
        }
    }
    text.len()
}

/// The length of `r"…"`, `r#"…"#`, `br"…"` or `cr"…"` at the start of `text`.
fn raw_string_length(text: &[u8]) -> Option<usize> {
    let prefix = usize::from(matches!(text[0], b'b' | b'c'));
    if text.get(prefix) != Some(&b'r') {
        return None;
    }
    let marks = text[prefix + 1..]
        .iter()
        .take_while(|byte| **byte == b'#')
        .count();
    let body = prefix + 1 + marks;
    if text.get(body) != Some(&b'"') {
        return None;
    }
    let closing = [&b"\""[..], &b"#".repeat(marks)].concat();
    let end = text[body + 1..]
        .windows(closing.len())
        .position(|window| window == closing);
    Some(end.map_or(text.len(), |found| body + 1 + found + closing.len()))
}

/// The length of a character literal; `None` for a lifetime or anything else.
fn character_length(text: &[u8]) -> Option<usize> {
    if text[0] != b'\'' {
        return None;
    }
    if text.get(1) == Some(&b'\\') {
        return Some(quoted_length(text, b'\''));
    }
    let first = std::str::from_utf8(&text[1..text.len().min(5)])
        .map_or_else(
            |error| std::str::from_utf8(&text[1..1 + error.valid_up_to()]).ok(),
            Some,
        )?
        .chars()
        .next()?;
    let end = 1 + first.len_utf8();
    (text.get(end) == Some(&b'\'')).then_some(end + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_literals_become_spaces_and_lines_stay() {
        let source = "let a = \"fn \\\" x\"; // fn y\nlet b = 'f'; /* fn /* z */ */ fn g() {}\n";
        let code = blank(source);
        assert_eq!(code.len(), source.len());
        assert_eq!(code.lines().count(), 2);
        assert_eq!(code.matches("fn ").count(), 1);
    }

    #[test]
    fn raw_strings_end_at_their_own_marks() {
        let code = blank("let a = r#\"x\"y\"#; let b = br\"{\"; let r = 1;");
        assert!(!code.contains('x') && !code.contains('{'));
        assert!(code.contains("let r = 1;"));
    }

    #[test]
    fn a_lifetime_is_code_and_a_character_is_not() {
        assert_eq!(
            blank("fn f<'a>(x: &'a str) { '{' }"),
            "fn f<'a>(x: &'a str) {     }"
        );
        assert_eq!(blank("'\\'' 'é' b'{'"), "          b   ");
    }

    #[test]
    fn an_identifier_that_ends_in_r_starts_no_raw_string() {
        assert_eq!(blank("for\"x\""), "for   ");
    }

    #[test]
    fn brackets_match_across_kinds() {
        let code = "f(a[1], { b }) + c";
        assert_eq!(matching_end(code, 1), Some(14));
        assert_eq!(matching_end("f((", 1), None);
        assert_eq!(line_of("a\nb\nc", 4), 3);
    }
}
