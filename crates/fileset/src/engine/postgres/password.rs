//! Files of passwords as PostgreSQL's own programs read them: `host:port:database:user:password` in each line.

use penstock_base::Secret;

use super::address::PostgresAddress;

/// The password for a database in the text of such a file.
pub fn password_in(text: &str, address: &PostgresAddress) -> Option<Secret> {
    let port = address.port.to_string();
    let host = address.host();
    let wanted = [&host, &port, &address.database, &address.user];
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .filter_map(fields)
        .find(|fields| {
            let pairs = fields.iter().zip(wanted);
            pairs
                .into_iter()
                .all(|(field, wanted)| field == "*" || field == wanted || is_local(field, wanted))
        })
        .map(|[.., password]| Secret::new(password))
}

/// `localhost` stands for a socket, too.
fn is_local(field: &str, wanted: &str) -> bool {
    field == "localhost" && wanted.starts_with('/')
}

/// The five fields of a line; `\` takes the meaning of what is behind it.
fn fields(line: &str) -> Option<[String; 5]> {
    let mut fields = vec![String::new()];
    let mut letters = line.chars();
    while let Some(letter) = letters.next() {
        match letter {
            ':' if fields.len() < 5 => fields.push(String::new()),
            '\\' => fields.last_mut()?.extend(letters.next()),
            _ => fields.last_mut()?.push(letter),
        }
    }
    fields.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str, address: &str) -> Option<String> {
        let address = PostgresAddress::parse(address).unwrap();
        password_in(text, &address).map(|secret| secret.expose().to_owned())
    }

    #[test]
    fn the_first_line_that_fits_has_the_password() {
        let text = "# a word\nother:*:*:*:wrong\nhost:5432:files:me:a\\:b\\\\c\n*:*:*:*:last\n";
        assert_eq!(
            found(text, "postgres://me@host/files").as_deref(),
            Some("a:b\\c")
        );
        assert_eq!(
            found(text, "postgres://me@host:1/files").as_deref(),
            Some("last")
        );
        assert_eq!(found("host:1:x:y:z", "postgres://me@host/files"), None);
        let socket = "postgres://me@/files?host=/run";
        assert_eq!(
            found("localhost:*:*:me:local", socket).as_deref(),
            Some("local")
        );
    }
}
