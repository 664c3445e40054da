//! Finds functions and measures them.

use super::lexer::{is_word, line_of, matching_end};

/// A function with a body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Function {
    /// Its name.
    pub(super) name: String,
    /// The line of `fn`.
    pub(super) line: usize,
    /// Lines from `fn` to the closing brace.
    pub(super) lines: usize,
    /// Parameters besides `self`.
    pub(super) parameters: usize,
    /// The body is one `match` without a statement: a table, which may be as long as it must.
    pub(super) is_table: bool,
}

/// The functions of blanked text, in order. Functions inside functions count on their own and
/// as part of their surroundings.
pub(super) fn functions(code: &str) -> Vec<Function> {
    code.match_indices("fn ")
        .filter(|(offset, _)| *offset == 0 || !is_word(code.as_bytes()[offset - 1]))
        .filter_map(|(offset, _)| function_at(code, offset))
        .collect()
}

fn function_at(code: &str, offset: usize) -> Option<Function> {
    let name_start = offset + "fn ".len();
    let name: String = code[name_start..]
        .bytes()
        .take_while(|byte| is_word(*byte))
        .map(char::from)
        .collect();
    if name.is_empty() {
        return None;
    }
    let open = parameters_start(code, name_start + name.len())?;
    let close = matching_end(code, open)?;
    let body = close + code[close..].find(['{', ';'])?;
    if code.as_bytes()[body] == b';' {
        return None;
    }
    let end = matching_end(code, body)?;
    let line = line_of(code, offset);
    Some(Function {
        name,
        line,
        lines: line_of(code, end) - line + 1,
        parameters: count_parameters(&code[open + 1..close - 1]),
        is_table: is_table(code[body + 1..end - 1].trim()),
    })
}

/// The parenthesis after the name and its generic parameters.
fn parameters_start(code: &str, from: usize) -> Option<usize> {
    let mut angles = Angles::default();
    let bytes = code.as_bytes();
    for at in from..bytes.len() {
        angles.step(bytes, at);
        match bytes[at] {
            b'(' if angles.depth == 0 => return Some(at),
            b'{' | b';' if angles.depth == 0 => return None,
            _ => {}
        }
    }
    None
}

fn count_parameters(list: &str) -> usize {
    let mut angles = Angles::default();
    let mut brackets = 0usize;
    let mut parameters = vec![String::new()];
    for (at, byte) in list.bytes().enumerate() {
        angles.step(list.as_bytes(), at);
        match byte {
            b'(' | b'[' | b'{' => brackets += 1,
            b')' | b']' | b'}' => brackets = brackets.saturating_sub(1),
            b',' if brackets == 0 && angles.depth == 0 => parameters.push(String::new()),
            _ => {}
        }
        if let Some(parameter) = parameters.last_mut() {
            parameter.push(char::from(byte));
        }
    }
    parameters
        .iter()
        .map(|text| text.trim_start_matches(',').trim())
        .filter(|text| !text.is_empty() && !is_receiver(text))
        .count()
}

/// `self`, `&self`, `&'a mut self`, `self: Arc<Self>`.
fn is_receiver(parameter: &str) -> bool {
    let pattern = parameter.split(':').next().unwrap_or_default().trim();
    pattern
        .rsplit(|character: char| !character.is_ascii_alphanumeric() && character != '_')
        .next()
        == Some("self")
}

fn is_table(body: &str) -> bool {
    body.starts_with("match ")
        && !body.contains(';')
        && body
            .find('{')
            .and_then(|open| matching_end(body, open))
            .is_some_and(|end| end == body.len())
}

/// Depth of `<…>`, not confused by `->` and `=>`.
#[derive(Default)]
struct Angles {
    depth: usize,
}

impl Angles {
    fn step(&mut self, text: &[u8], at: usize) {
        let is_arrow = at > 0 && matches!(text[at - 1], b'-' | b'=');
        match text[at] {
            b'<' => self.depth += 1,
            b'>' if !is_arrow => self.depth = self.depth.saturating_sub(1),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn only(code: &str) -> Function {
        let mut found = functions(code);
        assert_eq!(found.len(), 1, "{found:?}");
        found.remove(0)
    }

    #[test]
    fn lines_run_from_the_keyword_to_the_brace() {
        let function = only("\npub async fn read(&self) -> u8\n{\n    1\n}\n");
        assert_eq!(
            (function.name.as_str(), function.line, function.lines),
            ("read", 2, 4)
        );
    }

    #[test]
    fn parameters_leave_out_the_receiver_and_commas_inside_types() {
        let code =
            "fn f<F: Fn(u8) -> u8>(self: &Arc<Self>, a: Map<K, V>, (b, c): (u8, u8), d: F,) {}";
        assert_eq!(only(code).parameters, 3);
        assert_eq!(only("fn g(&'a mut self) {}").parameters, 0);
        assert_eq!(only("fn h(myself: u8) {}").parameters, 1);
    }

    #[test]
    fn declarations_and_pointer_types_are_not_functions() {
        assert_eq!(functions("fn later(&self); type F = fn (u8); ").len(), 0);
    }

    #[test]
    fn only_a_match_without_statements_is_a_table() {
        assert!(only("fn f(x: u8) -> u8 { match x { 1 => 2, _ => 3 } }").is_table);
        assert!(!only("fn f(x: u8) -> u8 { match x { 1 => { g(); 2 } _ => 3 } }").is_table);
        assert!(!only("fn f(x: u8) -> u8 { match x { _ => 3 } + 1 }").is_table);
    }
}
