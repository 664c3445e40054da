//! PutSymlink and GetSymlink of OSS.

use super::{Exchange, answer, put};
use crate::{
    digest::{self, Algorithm},
    http::{encoding, response::Response},
    refusal::{Code, Trouble},
    store::{Content, Kind, Object},
};

pub(crate) fn put_symlink(exchange: &mut Exchange<'_>) -> Result<Response, Trouble> {
    let condition = put::condition(exchange)?;
    put::check_write(exchange, &condition)?;
    let target = exchange.dialect_header("symlink-target").unwrap_or("");
    let target = encoding::decode_path(target).filter(|target| !target.is_empty());
    let target = target.ok_or_else(|| answer::invalid_argument("x-oss-symlink-target", ""))?;
    let etag = digest::of_bytes(Algorithm::Md5, target.as_bytes()).hex();
    let mut object = Object::new(Content::default(), etag.clone());
    object.kind = Kind::Symlink;
    object.attributes = put::attributes(exchange)?;
    object.target = Some(target);
    put::store(exchange, object, &condition)?;
    Ok(Response::new(200).header("ETag", answer::quoted(&etag)))
}

pub(crate) fn get_symlink(exchange: &mut Exchange<'_>) -> Result<Response, Trouble> {
    let object = exchange.object()?;
    let target = object.target.as_deref().ok_or(Code::NotSymlink)?;
    Ok(Response::new(200)
        .header("ETag", answer::quoted(&object.etag))
        .header("Last-Modified", answer::http_date(object.modified))
        .header("x-oss-symlink-target", encoding::encode(target)))
}
