//! What people write as a source or an endpoint: what is accepted prints as what it is.

#![no_main]

use libfuzzer_sys::fuzz_target;
use penstock_object::{StoreUrl, fuzzing};

fuzz_target!(|text: &str| {
    check_source(text);
    check_endpoint(text);
});

fn check_source(text: &str) {
    match text.parse::<StoreUrl>() {
        Ok(url) => {
            assert!(url.prefix().is_empty() || url.prefix().ends_with('/'));
            assert_eq!(url.to_string().parse(), Ok(url));
        }
        Err(error) => assert_no_secret(text, &error.to_string()),
    }
}

fn check_endpoint(text: &str) {
    match fuzzing::origin(text) {
        Ok(printed) => assert_eq!(fuzzing::origin(&printed).as_ref(), Ok(&printed)),
        Err(error) => assert_no_secret(text, &error),
    }
}

/// What stands before an `@` may be a user's name and password.
fn assert_no_secret(text: &str, error: &str) {
    let Some((before, host)) = text.rsplit_once('@') else {
        return;
    };
    let (scheme, user) = before.split_once("://").unwrap_or(("", before));
    // Short texts, and those with blanks, quotes or schemes, could be words of the message itself.
    let telling = user.len() > 16 && !user.contains([' ', '`', '\0']) && !user.contains("://");
    if telling && !scheme.contains(user) && !host.contains(user) {
        // What was hidden must not join what stands around it.
        assert!(!error.replace("***@", "\0").contains(user), "{error}");
    }
}
