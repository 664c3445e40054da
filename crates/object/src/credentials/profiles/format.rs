//! How files with profiles are written.
//!
//! A set-up that its tool follows must not be passed over here, since another place would be asked then.
//! So names of entries count in any case, a profile may be spread over several sections, and a line
//! that cannot be understood is an error: it may be half of something.

use serde_json::{Map, Value};

use super::section::Entries;

/// How a file is written.
#[derive(Debug, Clone, Copy)]
pub(in super::super) enum Format {
    /// `[NAME]`
    Ini,
    /// `[profile NAME]`, and `[default]`.
    IniOfAws,
    /// `{"current": NAME, "profiles": [{"name": NAME, ...}]}`
    Json,
}

/// The profile that is meant where nobody names one.
pub(super) const DEFAULT: &str = "default";

/// What one file says of a profile.
#[derive(Debug, Default)]
pub(super) struct Parsed {
    /// Those of its sections, where there are any.
    pub(super) entries: Option<Entries>,
    /// Headings that nearly name it, with what is below them.
    pub(super) near: Vec<(String, Entries)>,
    /// Why it should be there.
    pub(super) missed: Option<String>,
}

/// A heading and what is below it.
struct Block {
    heading: String,
    lines: Vec<(String, String)>,
}

/// A line of an INI file.
#[derive(Clone, Copy)]
enum Line<'a> {
    Heading(&'a str),
    Entry(&'a str, &'a str),
    /// More of the value above.
    More(&'a str),
}

impl Format {
    /// The profile `named`, or the one that is meant where none is.
    pub(super) fn parse(self, text: &str, named: Option<&str>) -> Result<Parsed, String> {
        if text.contains('\0') {
            return Err("it is no text".to_owned());
        }
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        match self {
            Self::Json => json(text, named),
            Self::Ini | Self::IniOfAws => {
                let blocks = blocks(text)?;
                Ok(self.select(blocks, named.unwrap_or(DEFAULT)))
            }
        }
    }

    fn select(self, blocks: Vec<Block>, name: &str) -> Parsed {
        let mut parsed = Parsed::default();
        for block in blocks {
            if self.profile_of(&block.heading) == Some(name) {
                parsed.entries.get_or_insert_default().extend(block.lines);
            } else if nearly_names(&block.heading, name) {
                let mut entries = Entries::default();
                entries.extend(block.lines);
                parsed.near.push((block.heading, entries));
            }
        }
        parsed
    }

    /// The profile that a heading names.
    fn profile_of(self, heading: &str) -> Option<&str> {
        match self {
            Self::IniOfAws if heading == DEFAULT => Some(heading),
            Self::IniOfAws => behind_profile(heading.strip_prefix("profile")?),
            Self::Ini | Self::Json => Some(heading),
        }
    }
}

/// What follows the word `profile`, in quotes or behind a blank.
fn behind_profile(rest: &str) -> Option<&str> {
    let ends_word = rest.starts_with([' ', '\t', '"', '\'']);
    ends_word.then(|| unquoted(rest.trim()).trim())
}

/// Whether somebody who writes headings for another file, or in other case, may mean the profile.
fn nearly_names(heading: &str, name: &str) -> bool {
    let word = heading.split_at_checked("profile".len());
    let rest = word.filter(|(word, _)| word.eq_ignore_ascii_case("profile"));
    let named = rest.and_then(|(_, rest)| behind_profile(rest));
    named.unwrap_or(heading).eq_ignore_ascii_case(name)
}

/// The blocks of an INI file. Like the tools, it takes a line that is indented deeper than the entry above
/// for more of that entry's value, unless it is an entry itself.
fn blocks(text: &str) -> Result<Vec<Block>, String> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut depth = None;
    let text = text.replace("\r\n", "\n");
    for (index, line) in text.split(['\n', '\r']).enumerate() {
        let content = line.trim();
        if content.is_empty() || content.starts_with(['#', ';']) {
            continue;
        }
        let indented = line.len() - line.trim_start().len();
        let is_deeper = depth.is_some_and(|depth| indented > depth);
        let line = understand(content, is_deeper);
        let taken = line.and_then(|line| take(&mut blocks, line));
        let is_entry = taken.ok_or_else(|| format!("line {}", index + 1))?;
        if !is_deeper {
            depth = is_entry.then_some(indented);
        }
    }
    Ok(blocks)
}

/// Adds a line, and tells whether it is an entry's. `None` where there is nothing to add it to.
fn take(blocks: &mut Vec<Block>, line: Line<'_>) -> Option<bool> {
    if let Line::Heading(heading) = line {
        blocks.push(Block {
            heading: heading.to_owned(),
            lines: Vec::new(),
        });
        return Some(false);
    }
    let lines = &mut blocks.last_mut()?.lines;
    match line {
        Line::Entry(name, value) => lines.push((name.to_owned(), unquoted(value).to_owned())),
        Line::Heading(more) | Line::More(more) => {
            let (_, value) = lines.last_mut()?;
            value.push('\n');
            value.push_str(more);
        }
    }
    Some(true)
}

fn understand(content: &str, is_deeper: bool) -> Option<Line<'_>> {
    let entry = content.split_once(['=', ':']);
    let entry = entry.map(|(name, value)| (name.trim(), value.trim()));
    if is_deeper {
        let entry = entry.filter(|(name, _)| is_word(name));
        return Some(entry.map_or(Line::More(content), |(name, value)| {
            Line::Entry(name, value)
        }));
    }
    if let Some(rest) = content.strip_prefix('[') {
        let (heading, rest) = rest.split_once(']')?;
        let rest = rest.trim_start();
        let is_whole = rest.is_empty() || rest.starts_with(['#', ';']);
        return is_whole.then(|| Line::Heading(heading.trim()));
    }
    let (name, value) = entry.filter(|(name, _)| !name.is_empty())?;
    Some(Line::Entry(name, value))
}

fn is_word(name: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    !name.is_empty() && name.bytes().all(is_part)
}

/// `text` without the quotes around it.
fn unquoted(text: &str) -> &str {
    let inner = |quote| {
        let inner = text.strip_prefix(quote)?.strip_suffix(quote)?;
        (!inner.contains(quote)).then_some(inner)
    };
    inner('"').or_else(|| inner('\'')).unwrap_or(text)
}

fn json(text: &str, named: Option<&str>) -> Result<Parsed, String> {
    let file: Map<String, Value> =
        serde_json::from_str(text).map_err(|error| format!("line {}", error.line()))?;
    let current = field(&file, "current").and_then(Value::as_str);
    let current = current.filter(|name| !name.is_empty());
    let name = named.or(current).unwrap_or(DEFAULT);
    let profiles = match field(&file, "profiles") {
        None | Some(Value::Null) => &[][..],
        Some(Value::Array(profiles)) => profiles,
        Some(_) => return Err("`profiles` is no list".to_owned()),
    };
    let blocks = profiles.iter().filter_map(Value::as_object).map(block);
    let mut parsed = Format::Json.select(blocks.collect(), name);
    if parsed.entries.is_none() && named.is_none() && current.is_some() {
        parsed.missed = Some(format!(
            "`current` is the profile `{name}`, which is not there"
        ));
    }
    Ok(parsed)
}

/// A field, in any case, as the tool reads them.
fn field<'a>(object: &'a Map<String, Value>, name: &str) -> Option<&'a Value> {
    let mut fields = object.iter();
    let (_, value) = fields.find(|(known, _)| known.eq_ignore_ascii_case(name))?;
    Some(value)
}

fn block(profile: &Map<String, Value>) -> Block {
    let heading = field(profile, "name").and_then(Value::as_str);
    let text = |value: &Value| match value {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        other => Some(other.to_string()),
    };
    let lines = profile.iter();
    Block {
        heading: heading.unwrap_or_default().to_owned(),
        lines: lines
            .filter_map(|(name, value)| Some((name.clone(), text(value)?)))
            .collect(),
    }
}
