//! XML that stores answer with: readers take anything, hold no more than they were given, and
//! a listing that is written down again reads the same.

#![no_main]

use std::{fmt::Write, time::UNIX_EPOCH};

use libfuzzer_sys::fuzz_target;
use penstock_object::{
    FlatPage, ListPage, ObjectKind,
    xml::{
        parse_delete_failures, parse_failure, parse_flat, parse_list, parse_upload_id, parse_uploads,
        parse_write_answer,
    },
};

/// How many bytes one byte may become: what is no UTF-8 is replaced by three.
const GROWTH_MAX: usize = 3;

fuzz_target!(|xml: &[u8]| {
    let room = GROWTH_MAX * xml.len();
    assert_eq!(parse_flat(xml), parse_list(xml).map(FlatPage::from));
    if let Ok(page) = parse_list(xml) {
        let keys = page.objects.iter().map(|object| object.key.len());
        let prefixes = page.common_prefixes.iter().map(String::len);
        assert!(keys.chain(prefixes).sum::<usize>() <= room);
        check_list(page);
    }
    if let Ok(page) = parse_uploads(xml) {
        let keys = page.uploads.iter().map(|upload| upload.key.as_str().len());
        assert!(keys.sum::<usize>() <= room);
        assert!(page.continuation.is_none_or(|text| text.len() <= room + 1));
    }
    if let Ok(failures) = parse_delete_failures(xml) {
        let held = |(key, failure): &(String, _)| key.len() + size_of(failure);
        assert!(failures.iter().map(held).sum::<usize>() <= room);
    }
    if let Some(failure) = parse_failure(xml) {
        assert!(size_of(&failure) <= room);
        assert!(parse_write_answer(xml).is_err(), "a failure is no success");
        assert!(parse_list(xml).is_err(), "a failure is no listing");
    }
    if let Ok(answer) = parse_write_answer(xml) {
        assert!(!answer.etag.is_empty() && answer.etag.len() <= room);
    }
    if let Ok(id) = parse_upload_id(xml) {
        assert!(!id.is_empty() && id.len() <= room);
    }
});

fn size_of(failure: &penstock_object::xml::Failure) -> usize {
    failure.code.len() + failure.message.len() + failure.region.len() + failure.endpoint.len()
}

fn check_list(mut page: ListPage) {
    for object in &mut page.objects {
        object.modified = UNIX_EPOCH;
    }
    // What is written here is not encoded.
    let is_sure = |name: &str| !name.contains(char::REPLACEMENT_CHARACTER);
    page.objects.retain(|object| is_sure(&object.key));
    page.common_prefixes.retain(|prefix| is_sure(prefix));
    page.hidden = 0;
    let xml = write_list(&page);
    assert_eq!(parse_list(xml.as_bytes()), Ok(page), "{xml}");
}

fn write_list(page: &ListPage) -> String {
    let mut xml = String::from("<ListBucketResult>");
    if let Some(continuation) = &page.continuation {
        xml.push_str("<IsTruncated>true</IsTruncated>");
        element(&mut xml, "NextContinuationToken", continuation);
    }
    for object in &page.objects {
        xml.push_str("<Contents>");
        element(&mut xml, "Key", &object.key);
        element(&mut xml, "Size", &object.size.to_string());
        // In quotes, within which blanks count.
        element(&mut xml, "ETag", &format!("\"{}\"", object.etag.as_str()));
        element(&mut xml, "StorageClass", &object.storage_class);
        element(&mut xml, "Type", kind_name(object.kind));
        xml.push_str("</Contents>");
    }
    for prefix in &page.common_prefixes {
        xml.push_str("<CommonPrefixes>");
        element(&mut xml, "Prefix", prefix);
        xml.push_str("</CommonPrefixes>");
    }
    xml.push_str("</ListBucketResult>");
    xml
}

fn kind_name(kind: ObjectKind) -> &'static str {
    match kind {
        ObjectKind::Normal => "Normal",
        ObjectKind::Appendable => "Appendable",
        ObjectKind::Symlink => "Symlink",
    }
}

/// References protect whatever a reader could take for markup or white space.
fn element(xml: &mut String, name: &str, text: &str) {
    let _ = write!(xml, "<{name}>");
    for character in text.chars() {
        match character {
            '<' | '>' | '&' | '\t' | '\n' | '\r' | ' ' => {
                let _ = write!(xml, "&#{};", u32::from(character));
            }
            other => xml.push(other),
        }
    }
    let _ = write!(xml, "</{name}>");
}
