//! Which column says what.

/// The columns that matter, by their place in a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Columns {
    pub(super) key: usize,
    /// Whether the column's name says that keys are percent-encoded.
    pub(super) encoded: bool,
    pub(super) size: Option<usize>,
    pub(super) modified: Option<usize>,
    pub(super) etag: Option<usize>,
    pub(super) latest: Option<usize>,
    pub(super) delete_marker: Option<usize>,
}

impl Columns {
    /// From the names of all columns in order; `None` where none of them is the key.
    pub(super) fn of<'a>(names: impl IntoIterator<Item = &'a str>) -> Option<Self> {
        let mut columns = Self::default();
        let mut has_key = false;
        for (index, name) in names.into_iter().enumerate() {
            match normal(name).as_str() {
                "key" | "encodedkey" if has_key => return None,
                "key" => (columns.key, has_key) = (index, true),
                "encodedkey" => {
                    (columns.key, columns.encoded, has_key) = (index, true, true);
                }
                "size" => columns.size = Some(index),
                "mtime" | "modified" | "lastmodified" | "lastmodifieddate" => {
                    columns.modified = Some(index);
                }
                "etag" => columns.etag = Some(index),
                "islatest" => columns.latest = Some(index),
                "isdeletemarker" => columns.delete_marker = Some(index),
                _ => {}
            }
        }
        has_key.then_some(columns)
    }
}

/// A name as it is compared: `Last-Modified_Date` and `lastModifiedDate` are the same.
fn normal(name: &str) -> String {
    let letters = name.trim().trim_matches('"').chars();
    letters
        .filter(char::is_ascii_alphanumeric)
        .map(|character| character.to_ascii_lowercase())
        .collect()
}
