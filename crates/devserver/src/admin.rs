//! The server's own requests, under `/-/`: no bucket can have that name.
//!
//! - `GET /-/health`
//! - `GET /-/counters`, `POST /-/counters/reset`
//! - `POST /-/crowds` with lines of `BUCKET/PREFIX:COUNT:SIZE:DIRECTORIES`, see [`Crowd`]
//! - `GET /-/faults`, `PUT /-/faults` with the JSON of [`Faults`], `DELETE /-/faults`

use std::io::{self, Read};

use serde_json::Value;

use crate::{
    faults::Faults,
    http::{
        body::Body,
        request::{Method, Request},
        response::{Payload, Response},
    },
    service::Service,
    store::crowd::Crowd,
};

/// What paths of the server's own begin with.
pub(crate) const PREFIX: &str = "/-/";

/// Bytes in the largest document.
const DOCUMENT_MAX: u64 = 1 << 20;

/// Answers a request of the server's own.
pub(crate) fn answer(
    service: &Service,
    request: &Request,
    body: &mut Body<'_>,
) -> io::Result<Response> {
    let path = request.path.trim_start_matches(PREFIX);
    Ok(match (request.method, path) {
        (Method::Get | Method::Head, "health") => {
            Response::json("{\"status\":\"ok\"}\n".to_owned())
        }
        (Method::Get, "counters") => json(&service.counters.snapshot()),
        (Method::Post, "counters/reset") => {
            service.counters.reset();
            Response::new(204)
        }
        (Method::Get, "faults") => json(&service.faults.get()),
        (Method::Put | Method::Post, "faults") => {
            let mut text = String::new();
            body.take(DOCUMENT_MAX).read_to_string(&mut text)?;
            match parse_faults(&text) {
                Ok(faults) => {
                    service.faults.set(faults);
                    json(&service.faults.get())
                }
                Err(why) => plain(400, &why),
            }
        }
        (Method::Put | Method::Post, "crowds") => {
            let mut text = String::new();
            body.take(DOCUMENT_MAX).read_to_string(&mut text)?;
            match text
                .lines()
                .map(str::parse)
                .collect::<Result<Vec<Crowd>, _>>()
            {
                Ok(crowds) => {
                    for crowd in &crowds {
                        service.data.add_crowd(crowd)?;
                    }
                    Response::new(204)
                }
                Err(why) => plain(400, &why),
            }
        }
        (Method::Delete, "faults") => {
            service.faults.clear();
            Response::new(204)
        }
        _ => plain(
            404,
            "there are health, counters, counters/reset, crowds and faults",
        ),
    })
}

fn json(value: &impl serde::Serialize) -> Response {
    match serde_json::to_string_pretty(value) {
        Ok(text) => Response::json(text + "\n"),
        Err(error) => plain(500, &error.to_string()),
    }
}

fn plain(status: u16, text: &str) -> Response {
    let mut response = Response::new(status).header("Content-Type", "text/plain");
    response.payload = Payload::Text(format!("{text}\n").into_bytes());
    response
}

/// Parses faults; a name that has no meaning is an error, as it would silently do nothing.
fn parse_faults(text: &str) -> Result<Faults, String> {
    let given: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let faults: Faults =
        serde_json::from_value(given.clone()).map_err(|error| error.to_string())?;
    let understood = serde_json::to_value(&faults).map_err(|error| error.to_string())?;
    match unknown_name(&given, &understood) {
        Some(name) => Err(format!("`{name}` has no meaning here")),
        None => Ok(faults),
    }
}

/// A name in `given` that is not in `understood`.
fn unknown_name(given: &Value, understood: &Value) -> Option<String> {
    match (given, understood) {
        (Value::Object(given), Value::Object(understood)) => {
            given
                .iter()
                .find_map(|(name, value)| match understood.get(name) {
                    None => Some(name.clone()),
                    Some(other) => unknown_name(value, other),
                })
        }
        (Value::Array(given), Value::Array(understood)) => given
            .iter()
            .zip(understood)
            .find_map(|(a, b)| unknown_name(a, b)),
        (Value::Array(_), _) => Some("[".to_owned()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_name_is_an_error() {
        assert!(parse_faults(r#"{"latency_ms": 1}"#).is_ok());
        assert!(
            parse_faults(r#"{"rules": [{"fault": "reset", "after": 1, "rate": 0.5}]}"#).is_ok()
        );
        for text in [
            r#"{"latency": 1}"#,
            r#"{"rules": [{"fault": "reset", "rte": 0.5}]}"#,
            r#"{"rules": [{"fault": "explode"}]}"#,
            "",
            "[]",
        ] {
            assert!(parse_faults(text).is_err(), "{text}");
        }
    }
}
