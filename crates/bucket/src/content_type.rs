//! Media types by file name, from a table such as `/etc/mime.types`.

use std::collections::HashMap;

/// Which media type files get by the extensions of their names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ContentTypes {
    by_extension: HashMap<String, String>,
    /// What a name without a known extension gets; `None` lets the store choose.
    fallback: Option<String>,
}

impl ContentTypes {
    /// Reads a table: in each line a media type and the extensions that it stands for, `#` begins a
    /// comment. Lines that make no sense are skipped. Of two types for one extension the first
    /// wins. Names that are not in the table get `fallback`.
    pub fn parse(table: &str, fallback: Option<&str>) -> Self {
        let mut by_extension = HashMap::new();
        for line in table.lines() {
            let mut words = line
                .split('#')
                .next()
                .unwrap_or_default()
                .split_whitespace();
            let Some(media_type) = words.next().filter(|word| is_media_type(word)) else {
                continue;
            };
            for extension in words {
                by_extension
                    .entry(extension.to_ascii_lowercase())
                    .or_insert_with(|| media_type.to_owned());
            }
        }
        Self {
            by_extension,
            fallback: fallback.map(str::to_owned),
        }
    }

    /// The media type of the file `key`. Of `a.tar.gz` the last extension that is known counts.
    pub(crate) fn of(&self, key: &str) -> Option<&str> {
        let name = key.rsplit('/').next().unwrap_or(key);
        let mut extensions = name.rsplit('.');
        let known = extensions
            .by_ref()
            .take(name.matches('.').count())
            .find_map(|extension| self.by_extension.get(&extension.to_ascii_lowercase()));
        known.or(self.fallback.as_ref()).map(String::as_str)
    }
}

fn is_media_type(word: &str) -> bool {
    let printable = word.bytes().all(|byte| byte.is_ascii_graphic());
    printable
        && word
            .split_once('/')
            .is_some_and(|(kind, name)| !kind.is_empty() && !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_get_the_type_of_their_last_known_extension() {
        let table = "# types\ntext/html html HTM # pages\nbroken a\nimage/jpeg\tjpg jpeg\n\
                     application/gzip gz\ntext/other html\nx/ jpg\n";
        let types = ContentTypes::parse(table, Some("application/octet-stream"));
        let cases = [
            ("dir.jpg/index.html", "text/html"),
            ("a.HTM", "text/html"),
            ("photo.jpeg", "image/jpeg"),
            ("a.tar.gz", "application/gzip"),
            ("a.gz.unknown", "application/gzip"),
            ("html", "application/octet-stream"),
            ("dir.html/plain", "application/octet-stream"),
            ("", "application/octet-stream"),
        ];
        for (name, expected) in cases {
            assert_eq!(types.of(name), Some(expected), "{name}");
        }
        assert_eq!(ContentTypes::default().of("a.html"), None);
    }
}
