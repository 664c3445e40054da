//! Walking through a document without building it.

use quick_xml::{
    Reader,
    events::{BytesRef, Event},
};

use crate::xml::XmlError;

/// Elements within elements; answers have four at most.
const DEPTH_MAX: usize = 32;

/// What the walk comes by. Names are without namespace prefixes.
pub(super) enum Step<'a> {
    /// An element begins.
    Open(&'a str),
    /// An element ends. The text is what stood in it since its last child, so all of it where it
    /// has none; it may be taken.
    Close(&'a str, &'a mut String),
}

/// Visits every element of `xml` in order.
pub(super) fn walk(
    xml: &[u8],
    mut visit: impl FnMut(Step<'_>) -> Result<(), XmlError>,
) -> Result<(), XmlError> {
    let document = String::from_utf8_lossy(xml);
    let mut reader = Reader::from_str(&document);
    let (mut text, mut depth, mut ended) = (String::new(), 0usize, false);
    loop {
        match reader.read_event().map_err(|error| malformed(&error))? {
            // Two readers of two documents in one might each find what the other does not.
            Event::Start(_) | Event::Empty(_) if ended => {
                return Err(malformed(&"another document follows"));
            }
            Event::Start(start) => {
                depth += 1;
                if depth > DEPTH_MAX {
                    return Err(XmlError::TooDeep);
                }
                text.clear();
                visit(Step::Open(local(start.name().0)))?;
            }
            Event::End(end) => {
                depth = depth.saturating_sub(1);
                visit(Step::Close(local(end.name().0), &mut text))?;
                text.clear();
                ended = depth == 0;
            }
            Event::Empty(element) => {
                text.clear();
                visit(Step::Open(local(element.name().0)))?;
                visit(Step::Close(local(element.name().0), &mut text))?;
                ended = depth == 0;
            }
            Event::Text(piece) => text.push_str(&piece),
            Event::CData(piece) => text.push_str(&piece),
            Event::GeneralRef(reference) => push_reference(&mut text, &reference)?,
            Event::Eof if depth > 0 => return Err(malformed(&"it ends too early")),
            Event::Eof => return Ok(()),
            Event::Decl(_) | Event::PI(_) | Event::DocType(_) | Event::Comment(_) => {}
        }
    }
}

fn push_reference(text: &mut String, reference: &BytesRef<'_>) -> Result<(), XmlError> {
    let character = match reference
        .resolve_char_ref()
        .map_err(|error| malformed(&error))?
    {
        Some(character) => character,
        None => match &**reference {
            "lt" => '<',
            "gt" => '>',
            "amp" => '&',
            "quot" => '"',
            "apos" => '\'',
            other => return Err(malformed(&format!("it uses the unknown entity `{other}`"))),
        },
    };
    text.push(character);
    Ok(())
}

fn local(name: &str) -> &str {
    name.rsplit(':').next().unwrap_or(name)
}

fn malformed(error: &dyn ToString) -> XmlError {
    XmlError::Malformed(error.to_string())
}
