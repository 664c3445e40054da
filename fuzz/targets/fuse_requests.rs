//! Requests as the kernel sends them: what is accepted agrees with the bytes that it came from.

#![no_main]

use libfuzzer_sys::fuzz_target;
use penstock_fuse::protocol::{
    Message, ParseError, Request, WRITE_HEAD_SIZE, parse, parse_detached,
};

fuzz_target!(|bytes: &[u8]| {
    let Ok(message) = parse(bytes) else {
        return;
    };
    assert_eq!(message.header.length as usize, bytes.len());
    check(&message, bytes);
    check_detached(&message, bytes);
    let mut longer = bytes.to_vec();
    longer.push(0);
    assert!(matches!(
        parse(&longer),
        Err(ParseError::WrongLength { .. })
    ));
});

fn check(message: &Message<'_>, bytes: &[u8]) {
    let mut names: Vec<&[u8]> = Vec::new();
    match &message.request {
        Request::Lookup { name }
        | Request::MakeNode { name, .. }
        | Request::MakeDirectory { name, .. }
        | Request::Unlink { name }
        | Request::RemoveDirectory { name }
        | Request::Create { name, .. } => names.push(name),
        Request::MakeSymlink { name, target } => names.extend([name, target]),
        Request::Rename { name, new_name, .. } => names.extend([name, new_name]),
        Request::Write { transfer, data, .. } => assert_eq!(transfer.size as usize, data.len()),
        Request::BatchForget(forgotten) => assert!(forgotten.iter().count() * 16 <= bytes.len()),
        _ => {}
    }
    assert!(names.iter().all(|name| !name.contains(&0)));
    let held: usize = names.iter().map(|name| name.len() + 1).sum();
    assert!(held <= bytes.len());
}

/// The data of a WRITE may lie elsewhere; nothing else about the request changes by that.
fn check_detached(message: &Message<'_>, bytes: &[u8]) {
    let Request::Write { transfer, .. } = message.request else {
        return;
    };
    if message.header.extension_length > 0 {
        return;
    }
    let detached = bytes.len() - WRITE_HEAD_SIZE;
    let apart = parse_detached(&bytes[..WRITE_HEAD_SIZE], detached).expect("the same request");
    let Request::Write {
        transfer: same,
        data: [],
        ..
    } = apart.request
    else {
        panic!("another request: {apart:?}");
    };
    assert_eq!(same, transfer);
}
