//! DeleteObject and DeleteObjects.

use super::{Exchange, receive::receive_document};
use crate::{
    http::{encoding, response::Response},
    refusal::{Code, Trouble},
    xml::Element,
};

/// Keys in one request.
const DELETES_MAX: usize = 1000;

pub(crate) fn delete_object(exchange: &mut Exchange<'_>) -> Result<Response, Trouble> {
    exchange.bucket()?.delete(&exchange.address.key);
    Ok(Response::new(204))
}

pub(crate) fn delete_objects(exchange: &mut Exchange<'_>) -> Result<Response, Trouble> {
    let bucket = exchange.bucket()?;
    let text = receive_document(exchange)?;
    let document = Element::parse(&text).filter(|root| root.name == "Delete");
    let document = document.ok_or(Code::MalformedXml)?;
    let keys: Vec<_> = document
        .children_named("Object")
        .map(|object| object.text_of("Key").ok_or(Code::MalformedXml))
        .collect::<Result<_, _>>()?;
    if keys.is_empty() || keys.len() > DELETES_MAX {
        return Err(Code::MalformedXml.into());
    }
    let quiet = document
        .text_of("Quiet")
        .is_some_and(|text| text.eq_ignore_ascii_case("true"));
    let encoded = exchange.is_oss() && exchange.request.query.get("encoding-type") == Some("url");
    let mut xml = exchange.document("DeleteResult");
    if encoded {
        xml.leaf("EncodingType", "url");
    }
    for key in keys {
        let named = || match encoded {
            true => encoding::encode(key),
            false => key.to_owned(),
        };
        if let Some(code) = exchange.service.faults.refusal_of(key) {
            xml.begin("Error");
            xml.leaf("Key", &named());
            xml.leaf("Code", &code);
            xml.leaf("Message", "a rule of the server's says so");
            xml.end();
            continue;
        }
        bucket.delete(key);
        if !quiet {
            xml.begin("Deleted");
            xml.leaf("Key", &named());
            xml.end();
        }
    }
    Ok(Response::xml(200, xml.finish()))
}
