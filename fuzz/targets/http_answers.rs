//! Heads of responses and chunked bodies, in pieces as a connection delivers them.

#![no_main]

use libfuzzer_sys::fuzz_target;
use penstock_object::fuzzing::{Head, chunked, head};

fuzz_target!(|bytes: &[u8]| {
    check_head(bytes);
    check_chunked(bytes);
    // Behind a head there is usually a body.
    if let Ok(Some(Head { length, .. })) = head(bytes) {
        check_chunked(&bytes[length..]);
    }
});

fn check_head(bytes: &[u8]) {
    let Ok(Some(whole)) = head(bytes) else {
        return;
    };
    assert!(whole.length <= bytes.len());
    let text = &bytes[..whole.length];
    for (name, value) in &whole.fields {
        assert!(!name.is_empty());
        for part in [name, value] {
            let part = part.as_bytes();
            assert!(part.is_empty() || text.windows(part.len()).any(|window| window == part));
            assert!(!part.contains(&b'\n') && !part.contains(&b'\r'), "{part:?}");
        }
    }
    assert_eq!(head(text), Ok(Some(whole)), "what follows does not matter");
    assert_eq!(
        head(&text[..text.len() - 1]),
        Ok(None),
        "the last byte does"
    );
}

/// The same bytes come out however many arrive at a time, and no more than went in.
fn check_chunked(body: &[u8]) {
    let whole = chunked(body, body.len().max(1));
    if let Ok(decoded) = &whole {
        assert!(decoded.len() <= body.len());
    }
    for window in [1, 7] {
        assert_eq!(chunked(body, window).ok(), whole.as_ref().ok().cloned());
    }
}
