//! Requests are built here by hand, as the kernel lays them out, and parsed.

use proptest::prelude::*;

use super::*;

fn message(opcode: u32, body: &[u8]) -> Vec<u8> {
    let length = (REQUEST_HEADER_SIZE + body.len()) as u32;
    let mut bytes = length.to_ne_bytes().to_vec();
    bytes.extend(opcode.to_ne_bytes());
    bytes.extend(77_u64.to_ne_bytes());
    bytes.extend(5_u64.to_ne_bytes());
    for id in [1000_u32, 100, 4711] {
        bytes.extend(id.to_ne_bytes());
    }
    bytes.extend([0; 4]);
    bytes.extend(body);
    bytes
}

proptest! {
    #[test]
    fn never_panics_on_any_bytes(bytes: Vec<u8>) {
        let _ = parse(&bytes);
    }

    #[test]
    fn never_panics_behind_a_good_header(opcode in 0_u32..64, body: Vec<u8>) {
        let _ = parse(&message(opcode, &body));
    }

    #[test]
    fn never_panics_on_any_extension(opcode in 0_u32..64, body: Vec<u8>, extension: u16) {
        let mut bytes = message(opcode, &body);
        bytes[36..38].copy_from_slice(&extension.to_ne_bytes());
        let _ = parse(&bytes);
    }

    #[test]
    fn write_carries_its_data(offset: u64, data: Vec<u8>) {
        let mut body = 9_u64.to_ne_bytes().to_vec();
        body.extend(offset.to_ne_bytes());
        body.extend((data.len() as u32).to_ne_bytes());
        body.extend([0; 20]);
        body.extend(&data);
        let bytes = message(16, &body);
        let transfer = Transfer { handle: HandleId(9), offset, size: data.len() as u32 };
        let whole = parse(&bytes).expect("well formed");
        prop_assert_eq!(whole.request, Request::Write { transfer, appends: false, is_direct: false, table: None, data: &data });
        let head = parse_detached(&bytes[..WRITE_HEAD_SIZE], data.len()).expect("well formed");
        prop_assert_eq!(head.request, Request::Write { transfer, appends: false, is_direct: false, table: None, data: &[] });
    }

    #[test]
    fn batch_forget_lists_every_node(pairs: Vec<(u64, u64)>) {
        let mut body = (pairs.len() as u32).to_ne_bytes().to_vec();
        body.extend([0; 4]);
        for (node, count) in &pairs {
            body.extend(node.to_ne_bytes());
            body.extend(count.to_ne_bytes());
        }
        let bytes = message(42, &body);
        let Request::BatchForget(forgotten) = parse(&bytes).expect("well formed").request else {
            panic!("another request");
        };
        let listed: Vec<_> = forgotten.iter().map(|(node, count)| (node.0, count)).collect();
        prop_assert_eq!(listed, pairs);
    }
}

use penstock_vfs::{AttributeChanges, HandleId, Inode, TimeChange};

#[test]
fn the_header_tells_who_asks_about_what() {
    let bytes = message(1, b"name\0");
    let message = parse(&bytes).expect("well formed");
    assert_eq!(message.request, Request::Lookup { name: b"name" });
    let header = message.header;
    assert_eq!((header.unique, header.node), (77, Inode(5)));
    let caller = header.caller;
    assert_eq!((caller.uid, caller.gid, caller.pid), (1000, 100, 4711));
}

#[test]
fn writes_and_flushes_tell_the_descriptor_table() {
    let table = DescriptorTable(0x1234_5678_9abc_def0);
    for (flags, told) in [(0_u32, None), (2, Some(table)), (7, Some(table))] {
        let mut body = [0; 40];
        body[20..24].copy_from_slice(&flags.to_ne_bytes());
        body[24..32].copy_from_slice(&table.0.to_ne_bytes());
        let bytes = message(16, &body);
        let Request::Write { table, .. } = parse(&bytes).expect("well formed").request else {
            panic!("another request");
        };
        assert_eq!(table, told);
    }
    let mut body = [0; 24];
    body[16..].copy_from_slice(&table.0.to_ne_bytes());
    let handle = HandleId(0);
    let bytes = message(25, &body);
    assert_eq!(
        parse(&bytes).expect("well formed").request,
        Request::Flush { handle, table }
    );
}

#[test]
fn refuses_what_is_cut_off() {
    assert_eq!(parse(&[0; 39]), Err(ParseError::ShortHeader(39)));
    assert_eq!(
        parse(&message(1, b"name")),
        Err(ParseError::UnterminatedName(1))
    );
    assert_eq!(
        parse(&message(15, &[0; 19])),
        Err(ParseError::Truncated(15))
    );
    let mut longer = message(3, &[0; 16]);
    longer.push(0);
    assert_eq!(
        parse(&longer),
        Err(ParseError::WrongLength {
            said: 56,
            received: 57
        })
    );
}

#[test]
fn rename_has_flags_only_in_its_second_form() {
    let plain = message(12, b"\x08\0\0\0\0\0\0\0old\0new\0");
    let flagged = message(45, b"\x08\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0old\0new\0");
    for (bytes, flags) in [(plain, 0), (flagged, 1)] {
        assert_eq!(
            parse(&bytes).expect("well formed").request,
            Request::Rename {
                name: b"old",
                new_parent: Inode(8),
                new_name: b"new",
                flags
            }
        );
    }
}

#[test]
fn setattr_changes_only_what_is_marked_valid() {
    let mut body = vec![0_u8; 88];
    body[..4].copy_from_slice(&(1_u32 | 8 | 0x20 | 0x80 | 0x10).to_ne_bytes());
    body[16..24].copy_from_slice(&123_u64.to_ne_bytes());
    body[40..48].copy_from_slice(&(-2_i64).to_ne_bytes());
    body[60..64].copy_from_slice(&500_000_000_u32.to_ne_bytes());
    body[68..72].copy_from_slice(&0o100_644_u32.to_ne_bytes());
    let before_1970 = std::time::UNIX_EPOCH - std::time::Duration::from_millis(1500);
    let changes = AttributeChanges {
        permissions: Some(0o644),
        size: Some(123),
        accessed: Some(TimeChange::Now),
        modified: Some(TimeChange::To(before_1970)),
        ..AttributeChanges::default()
    };
    assert_eq!(
        parse(&message(4, &body)).expect("well formed").request,
        Request::SetAttributes(changes)
    );
}

#[test]
fn init_reads_the_upper_half_only_when_it_is_valid() {
    let offer = |low: u32| {
        let mut body = Vec::new();
        for field in [7, 45, 131_072, low, 1 << 9] {
            body.extend(field.to_ne_bytes());
        }
        body.extend([0; 44]);
        let Request::Init(request) = parse(&message(26, &body)).expect("well formed").request
        else {
            panic!("another request");
        };
        request.offered
    };
    assert_eq!(
        offer(1 << 30),
        Capabilities::INIT_EXT.union(Capabilities::OVER_IO_URING)
    );
    assert_eq!(offer(1), Capabilities::ASYNC_READ);
}

#[test]
fn requests_for_extended_attributes_carry_names_values_and_room() {
    let body = |numbers: [u32; 2], rest: &[u8]| {
        let mut body = numbers.map(u32::to_ne_bytes).concat();
        body.extend(rest);
        body
    };
    let (name, value) = (b"user.a".as_slice(), b"a\0b".as_slice());
    let bytes = message(21, &body([3, 1], b"user.a\0a\0b"));
    let set = Request::SetXattr {
        name,
        value,
        flags: 1,
        drops_set_gid: false,
    };
    assert_eq!(parse(&bytes).expect("well formed").request, set);
    let bytes = message(22, &body([64, 0], b"user.a\0"));
    let get = Request::GetXattr { name, size: 64 };
    assert_eq!(parse(&bytes).expect("well formed").request, get);
    let bytes = message(23, &body([64, 0], b""));
    let list = Request::ListXattr { size: 64 };
    assert_eq!(parse(&bytes).expect("well formed").request, list);
    let bytes = message(24, b"user.a\0");
    let remove = Request::RemoveXattr { name };
    assert_eq!(parse(&bytes).expect("well formed").request, remove);
    for drops_set_gid in [false, true] {
        let mut own = u32::from(drops_set_gid).to_ne_bytes().to_vec();
        own.extend(b"\0\0\0\0user.a\0a\0b");
        let set = Request::SetXattr {
            name,
            value,
            flags: 1,
            drops_set_gid,
        };
        let bytes = message(21, &body([3, 1], &own));
        assert_eq!(parse(&bytes).expect("well formed").request, set);
    }
    // More than there is.
    let bytes = message(21, &body([4, 0], b"user.a\0a\0b"));
    assert!(parse(&bytes).is_err());
}

#[test]
fn what_is_made_comes_with_the_umask_of_who_makes_it() {
    let body = |numbers: [u32; 4]| {
        let mut body = numbers.map(u32::to_ne_bytes).concat();
        body.extend(b"new\0");
        body
    };
    let (name, umask) = (b"new".as_slice(), 0o022);
    let bytes = message(35, &body([1, 0o666, umask, 0]));
    let create = Request::Create {
        name,
        flags: 1,
        mode: 0o666,
        umask,
    };
    assert_eq!(parse(&bytes).expect("well formed").request, create);
    let bytes = message(8, &body([0o666, 5, umask, 0]));
    let node = Request::MakeNode {
        name,
        mode: 0o666,
        umask,
        device: 5,
    };
    assert_eq!(parse(&bytes).expect("well formed").request, node);
    let bytes = message(
        9,
        &[
            &0o777_u32.to_ne_bytes(),
            &umask.to_ne_bytes(),
            b"new\0".as_slice(),
        ]
        .concat(),
    );
    let directory = Request::MakeDirectory {
        name,
        mode: 0o777,
        umask,
    };
    assert_eq!(parse(&bytes).expect("well formed").request, directory);
}
