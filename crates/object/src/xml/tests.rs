//! What every reader takes and refuses, held against a library.

mod oracle;
mod walk;

use proptest::prelude::*;

use super::*;
use crate::FlatPage;

const PAGE: &str = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
    <ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Name>b</Name>\
    <Prefix>p/</Prefix><MaxKeys>2</MaxKeys><EncodingType>url</EncodingType>\
    <IsTruncated>true</IsTruncated><NextContinuationToken>a&amp;b==</NextContinuationToken>\
    <Contents><Key>p/a%2Bb</Key><LastModified>2020-05-18T05:45:54.000Z</LastModified>\
    <ETag>&quot;abc-2&quot;</ETag><Size>12</Size><StorageClass>STANDARD</StorageClass>\
    <Owner><ID>x</ID><DisplayName>y</DisplayName></Owner></Contents>\n\
    <Contents><Key>p/plain</Key><LastModified>2021-05-18T05:45:54.250Z</LastModified>\
    <ETag>\"x\"</ETag><Type>Normal</Type><Size>0</Size></Contents></ListBucketResult>";

#[test]
fn decodes_leniently() {
    assert_eq!(decode_url("php/a%2Bb+c%zz".into()), "php/a+b c%zz");
}

#[test]
fn both_forms_of_a_page_are_the_same() {
    let page = parse_flat(PAGE.as_bytes()).expect("valid");
    let keys: Vec<_> = page.objects().map(|object| object.key).collect();
    assert_eq!(keys, ["p/a+b", "p/plain"]);
    assert_eq!((page.object(0).etag, page.object(0).size), ("abc-2", 12));
    assert_eq!(page.object(1).modified.nanoseconds, 250_000_000);
    assert_eq!(page.continuation.as_deref(), Some("a&b=="));
    assert_eq!(Ok(page), parse_list(PAGE.as_bytes()).map(FlatPage::from));
}

/// What may be written in another way is read like the usual one, by us and by a library.
#[test]
fn what_is_unusual_is_understood() {
    for (usual, unusual, is_read) in [
        ("<Name>", "<!-- c --><Name>", true),
        ("<Size>0</Size>", "<Size/>", false),
        ("<Size>0</Size>", "<Size >0</Size >", true),
        ("<Name>", "<Name a='>' b=\"/\">", true),
        ("p/plain", "p/<![CDATA[plain]]>", true),
        ("<Key>p/plain", "<Key>p/&#112;lain", true),
        ("<Key>p/plain", "<Key>p/&#x70;lain", true),
        ("<Key>p/plain", "<Key>p/&none;lain", false),
        ("<Key>p/plain", "<Key>p/<?php 1 ?>pl<!-- - -->ain", true),
        ("<Key>p/plain", "<Key>before<x>within</x>p/plain", true),
        ("</ListBucketResult>", "", false),
        ("</ListBucketResult>", "</ListBucketResult><a/>", false),
        ("</Owner>", "</owner>", false),
        ("<Contents><Key>p/plain", "<x:Contents><Key>p/plain", false),
        ("&quot;abc-2&quot;", "&#34;abc-2&#34;", true),
        ("&quot;abc-2&quot;", "&quot; \"a\" &quot;", true),
        ("IsTruncated>true", "IsTruncated>false", true),
        ("IsTruncated>true", "IsTruncated>&true", false),
        ("IsTruncated>true", "IsTruncated> true ", true),
        ("EncodingType>url", "EncodingType>&url", false),
        ("EncodingType>url", "EncodingType>", true),
    ] {
        let text = PAGE.replacen(usual, unusual, 1);
        let page = parse_list(text.as_bytes());
        assert_eq!(page.is_ok(), is_read, "{unusual}: {page:?}");
        assert_eq!(
            page.as_ref().ok(),
            oracle::read(text.as_bytes()).as_ref().ok(),
            "{unusual}"
        );
        let flat = parse_flat(text.as_bytes());
        assert_eq!(flat, page.map(FlatPage::from), "{unusual}");
    }
    let without = PAGE.replace("NextContinuationToken", "Other");
    let error = parse_flat(without.as_bytes()).expect_err("nowhere to go on");
    assert_eq!(error, XmlError::Missing("NextContinuationToken"));
}

#[test]
fn names_may_turn_out_to_be_encoded_at_the_end() {
    let encoding = "<EncodingType>url</EncodingType>";
    let text = PAGE.replace(encoding, "");
    let text = text.replace(
        "</ListBucketResult>",
        &format!("{encoding}</ListBucketResult>"),
    );
    assert_eq!(parse_list(text.as_bytes()), parse_list(PAGE.as_bytes()));
}

#[test]
fn documents_are_not_nested_without_end() {
    let deep = "<a>".repeat(100_000);
    let error = parse_list(format!("<ListBucketResult>{deep}").as_bytes());
    assert_eq!(error, Err(XmlError::TooDeep));
}

fn mutated() -> impl Strategy<Value = String> {
    let pieces = prop::sample::select(vec![
        "",
        "<",
        ">",
        "/",
        "&",
        ";",
        "&lt;",
        "&#65;",
        "\"",
        " ",
        "\r\n",
        "<Key>",
        "</Key>",
        "<Contents>",
        "</Contents>",
        "%41",
        "+",
        "é",
        "<a/>",
        "<!---->",
        "x",
        "]]>",
        "true",
        "'",
        "<CommonPrefixes><Prefix>q/</Prefix></CommonPrefixes>",
        "<ETag>",
        "=",
        "\u{0}",
    ]);
    (0..PAGE.len(), 0..40usize, pieces).prop_map(|(start, length, piece)| {
        let end = (start + length).min(PAGE.len());
        format!("{}{piece}{}", &PAGE[..start], &PAGE[end..])
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn agrees_with_a_library(text in mutated()) {
        let page = parse_list(text.as_bytes());
        // What a library refuses may be refused or not, but nothing else is read where it reads something.
        if let Ok(expected) = oracle::read(text.as_bytes()) {
            prop_assert_eq!(page.as_ref(), Ok(&expected), "{}", text);
        }
        prop_assert_eq!(parse_flat(text.as_bytes()), page.map(FlatPage::from), "{}", text);
    }

    #[test]
    fn keys_survive(key in "[ -~à-ü]{1,40}", tag in "[ -~]{0,10}") {
        let text = PAGE
            .replace("<EncodingType>url</EncodingType>", "")
            .replace("p/plain", &quick_xml::escape::escape(&key))
            .replace("\"x\"", &escaped(&tag));
        let page = parse_flat(text.as_bytes()).expect("valid");
        prop_assert_eq!(page.object(1).key, &key);
        let expected = oracle::read(text.as_bytes()).map(FlatPage::from);
        prop_assert_eq!(Ok(page), expected);
    }
}
