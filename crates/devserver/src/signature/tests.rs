//! Vectors from the documentation of both clouds and from their SDKs, and what is refused.

use std::time::UNIX_EPOCH;

use super::*;
use crate::settings::Credentials;

/// A request in its text, and the bucket in its host.
struct Sample {
    request: Request,
    address: Address,
}

impl Sample {
    fn new(bucket: &str, text: &str) -> Self {
        let text = format!("{}\r\n\r\n", text.trim().replace('\n', "\r\n"));
        let request = Request::parse(text.as_bytes())
            .expect("well formed")
            .expect("whole")
            .0;
        let key = crate::http::encoding::decode_path(&request.path[1..]).expect("UTF-8");
        let address = Address {
            bucket: bucket.to_owned(),
            key,
        };
        Self { request, address }
    }

    fn subject(&self) -> Subject<'_> {
        Subject {
            request: &self.request,
            address: &self.address,
        }
    }

    /// The outcome at a time, for the keys `ak` and the one of AWS's documentation.
    fn check_at(&self, seconds: u64, region: Option<&str>) -> Result<(), Refusal> {
        let mut with_token = Credentials::new("sts", "sk");
        with_token.token = Some("token".to_owned());
        let settings = Settings {
            credentials: vec![
                Credentials::new("ak", "sk"),
                Credentials::new(
                    "44CF9590006BF252F707",
                    "OtxrzxIsfpFjA7SwPzILwy8Bw21TLhquhboDYROV",
                ),
                Credentials::new(
                    "AKIAIOSFODNN7EXAMPLE",
                    "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
                ),
                with_token,
            ],
            region: region.map(str::to_owned),
            ..Settings::default()
        };
        let now = UNIX_EPOCH + Duration::from_secs(seconds);
        let subject = self.subject();
        check(&subject, &evidence(&subject)?, &settings, now)
    }
}

fn outcome(sample: &Sample, seconds: u64, region: Option<&str>) -> Result<(), Code> {
    sample
        .check_at(seconds, region)
        .map_err(|refusal| refusal.code)
}

const EMPTY_HASH: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
/// 2013-05-24, the day of all examples in AWS's documentation.
const AWS_DAY: u64 = 1_369_353_600;

fn aws_sample(line: &str, more: &str, signed: &str, signature: &str) -> Sample {
    let text = format!(
        "{line} HTTP/1.1\nHost: examplebucket.s3.amazonaws.com\nx-amz-date: 20130524T000000Z\n{more}\n\
         Authorization: AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request,\
         SignedHeaders={signed},Signature={signature}"
    );
    Sample::new("examplebucket", &text)
}

fn aws_list() -> Sample {
    aws_sample(
        "GET /?max-keys=2&prefix=J",
        &format!("x-amz-content-sha256: {EMPTY_HASH}"),
        "host;x-amz-content-sha256;x-amz-date",
        "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7",
    )
}

#[test]
fn sigv4_examples_of_the_documentation() {
    let hash = format!("x-amz-content-sha256: {EMPTY_HASH}");
    let get = aws_sample(
        "GET /test.txt",
        &format!("Range: bytes=0-9\n{hash}"),
        "host;range;x-amz-content-sha256;x-amz-date",
        "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41",
    );
    let put = aws_sample(
        "PUT /test$file.text",
        "Date: Fri, 24 May 2013 00:00:00 GMT\nx-amz-storage-class: REDUCED_REDUNDANCY\n\
         x-amz-content-sha256: 44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072",
        "date;host;x-amz-content-sha256;x-amz-date;x-amz-storage-class",
        "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd",
    );
    let lifecycle = aws_sample(
        "GET /?lifecycle",
        &hash,
        "host;x-amz-content-sha256;x-amz-date",
        "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543",
    );
    for sample in [get, put, lifecycle, aws_list()] {
        assert_eq!(outcome(&sample, AWS_DAY, None), Ok(()));
    }
}

#[test]
fn sigv4_presigned_example() {
    let sample = Sample::new(
        "examplebucket",
        "GET /test.txt?X-Amz-Algorithm=AWS4-HMAC-SHA256\
         &X-Amz-Credential=AKIAIOSFODNN7EXAMPLE%2F20130524%2Fus-east-1%2Fs3%2Faws4_request\
         &X-Amz-Date=20130524T000000Z&X-Amz-Expires=86400&X-Amz-SignedHeaders=host\
         &X-Amz-Signature=aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404 HTTP/1.1\n\
         Host: examplebucket.s3.amazonaws.com",
    );
    assert_eq!(outcome(&sample, AWS_DAY, None), Ok(()));
    assert_eq!(outcome(&sample, AWS_DAY + 86_400, None), Ok(()));
    assert_eq!(
        outcome(&sample, AWS_DAY + 86_401, None),
        Err(Code::AccessDenied)
    );
    assert_eq!(
        outcome(&sample, AWS_DAY - 3600, None),
        Err(Code::AccessDenied)
    );
}

#[test]
fn sigv4_refusals() {
    let sample = aws_list();
    assert_eq!(outcome(&sample, AWS_DAY + 899, Some("us-east-1")), Ok(()));
    assert_eq!(
        outcome(&sample, AWS_DAY + 901, None),
        Err(Code::RequestTimeTooSkewed)
    );
    assert_eq!(
        outcome(&sample, AWS_DAY - 901, None),
        Err(Code::RequestTimeTooSkewed)
    );
    let refusal = sample
        .check_at(AWS_DAY, Some("eu-west-1"))
        .expect_err("another region");
    assert_eq!(refusal.code, Code::AuthorizationHeaderMalformed);
    assert!(
        refusal
            .details
            .contains(&("Region", "eu-west-1".to_owned()))
    );
    let hash = format!("x-amz-content-sha256: {EMPTY_HASH}");
    let other = aws_sample(
        "GET /?max-keys=3",
        &hash,
        "host;x-amz-content-sha256;x-amz-date",
        "34b4",
    );
    assert_eq!(
        outcome(&other, AWS_DAY, None),
        Err(Code::SignatureDoesNotMatch)
    );
    let unsigned = aws_sample("GET /", &hash, "host;x-amz-date", "34b4");
    assert_eq!(outcome(&unsigned, AWS_DAY, None), Err(Code::AccessDenied));
    let no_hash = aws_sample("GET /", "a: b", "host;x-amz-date", "34b4");
    assert_eq!(outcome(&no_hash, AWS_DAY, None), Err(Code::InvalidRequest));
}

#[test]
fn unsigned_and_unknown_requests_are_refused() {
    let refused = |text: &str| outcome(&Sample::new("b", text), AWS_DAY, None);
    assert_eq!(refused("GET /k HTTP/1.1"), Err(Code::AccessDenied));
    assert_eq!(
        refused("GET /k HTTP/1.1\nAuthorization: AWS ak:sig"),
        Err(Code::InvalidRequest)
    );
    assert_eq!(
        refused(
            "GET /k HTTP/1.1\nDate: Fri, 24 May 2013 00:00:00 GMT\nAuthorization: OSS nobody:sig"
        ),
        Err(Code::InvalidAccessKeyId)
    );
    for text in [
        "OSS ak",
        "OSS4-HMAC-SHA256 Credential=ak",
        "OSS4-HMAC-SHA256 Credential=ak/1/2/3/4, Signature=s",
    ] {
        let refusal = refused(&format!(
            "GET /k HTTP/1.1\nx-oss-date: 20130524T000000Z\nAuthorization: {text}"
        ));
        assert_eq!(refusal, Err(Code::InvalidArgument), "{text}");
    }
}

/// 2022-12-28T10:27:41Z.
const V1_TIME: u64 = 1_672_223_261;

fn v1_sample(bucket: &str, line: &str, more: &str, signature: &str) -> Sample {
    let date = "Wed, 28 Dec 2022 10:27:41 GMT";
    let text = format!(
        "{line} HTTP/1.1\nDate: {date}\nx-oss-date: {date}\n{more}Authorization: OSS ak:{signature}"
    );
    Sample::new(bucket, &text)
}

#[test]
fn oss_v1_example_of_the_documentation() {
    let sample = Sample::new(
        "oss-example",
        "PUT /nelson HTTP/1.1\nContent-MD5: ODBGOERFMDMzQTczRUY3NUE3NzA5QzdFNUYzMDQxNEM=\n\
         Content-Type: text/html\nDate: Thu, 17 Nov 2005 18:49:58 GMT\nX-OSS-Meta-Author: foo@bar.com\n\
         X-OSS-Magic: abracadabra\nAuthorization: OSS 44CF9590006BF252F707:26NBxoKdsyly4EDv6inkoDft/yA=",
    );
    assert_eq!(outcome(&sample, 1_132_253_398, None), Ok(()));
    assert_eq!(
        outcome(&sample, 1_132_253_398 + 901, None),
        Err(Code::RequestTimeTooSkewed)
    );
}

#[test]
fn oss_v1_vectors() {
    let meta = "Content-MD5: eB5eJF1ptWaXm4bijSPyxw==\nContent-Type: text/html\n\
                x-oss-meta-author: alice\nx-oss-meta-magic: abracadabra\n";
    for sample in [
        v1_sample(
            "examplebucket",
            "PUT /nelson",
            meta,
            "kSHKmLxlyEAKtZPkJhG9bZb5k7M=",
        ),
        v1_sample(
            "examplebucket",
            "PUT /nelson?acl",
            meta,
            "/afkugFbmWDQ967j1vr6zygBLQk=",
        ),
        v1_sample(
            "examplebucket",
            "GET /?resourceGroup&non-resource=null",
            "",
            "vkQmfuUDyi1uDi3bKt67oemssIs=",
        ),
        v1_sample(
            "examplebucket",
            "GET /?resourceGroup&acl",
            "",
            "x3E5TgOvl/i7PN618s5mEvpJDYk=",
        ),
    ] {
        assert_eq!(outcome(&sample, V1_TIME, None), Ok(()));
    }
    let wrong = v1_sample(
        "examplebucket",
        "GET /?acl",
        "",
        "x3E5TgOvl/i7PN618s5mEvpJDYk=",
    );
    assert_eq!(
        outcome(&wrong, V1_TIME, None),
        Err(Code::SignatureDoesNotMatch)
    );
}

#[test]
fn oss_v1_presigned_vectors() {
    let sample = Sample::new(
        "oss-example",
        "GET /oss-api.pdf?OSSAccessKeyId=44CF9590006BF252F707&Expires=1141889120\
         &Signature=EwaNTn1erJGkimiJ9WmXgwnANLc%3D HTTP/1.1",
    );
    assert_eq!(outcome(&sample, 1_141_889_120, None), Ok(()));
    assert_eq!(
        outcome(&sample, 1_141_889_121, None),
        Err(Code::AccessDenied)
    );
    let sample = Sample::new(
        "bucket",
        "GET /key?versionId=versionId&OSSAccessKeyId=ak&Expires=1699807420\
         &Signature=dcLTea%2BYh9ApirQ8o8dOPqtvJXQ%3D HTTP/1.1",
    );
    assert_eq!(outcome(&sample, 1_699_807_400, None), Ok(()));
    let sample = Sample::new(
        "bucket",
        "GET /key%2B123?security-token=token&versionId=versionId&OSSAccessKeyId=sts&Expires=1699808204\
         &Signature=jzKYRrM5y6Br0dRFPaTGOsbrDhY%3D HTTP/1.1",
    );
    assert_eq!(outcome(&sample, 1_699_808_204, None), Ok(()));
}

const V4_LINE: &str = "PUT /1234%2B-/123/1.txt?param1=value1&%2Bparam1=value3&%7Cparam1=value4&%2Bparam2&%7Cparam2&param2";

struct V4<'a> {
    key: &'a str,
    scope: &'a str,
    time: &'a str,
    more: &'a str,
    additional: &'a str,
    signature: &'a str,
}

impl V4<'_> {
    fn sample(&self, separator: &str) -> Sample {
        let Self {
            key,
            scope,
            time,
            more,
            additional,
            signature,
        } = self;
        let text = format!(
            "{V4_LINE} HTTP/1.1\ncontent-type: text/plain\nx-oss-head1: value\n\
             x-oss-content-sha256: UNSIGNED-PAYLOAD\nx-oss-date: {time}\n{more}\
             Authorization: OSS4-HMAC-SHA256 Credential={key}/{scope}/aliyun_v4_request{separator}\
             {additional}Signature={signature}"
        );
        Sample::new("bucket", &text)
    }
}

#[test]
fn oss_v4_vectors() {
    let b = V4 {
        key: "ak",
        scope: "20231216/cn-hangzhou/oss",
        time: "20231216T162057Z",
        more: "",
        additional: "",
        signature: "e21d18daa82167720f9b1047ae7e7f1ce7cb77a31e8203a7d5f4624fa0284afe",
    };
    let c = V4 {
        time: "20231216T172512Z",
        more: "abc: value\nzabc: value\nxyz: value\n",
        additional: "AdditionalHeaders=abc;zabc,",
        signature: "4a4183c187c07c8947db7620deb0a6b38d9fbdd34187b6dbaccb316fa251212f",
        ..b
    };
    let d = V4 {
        key: "sts",
        scope: "20231217/cn-hangzhou/oss",
        time: "20231217T034736Z",
        more: "x-oss-security-token: token\n",
        signature: "b94a3f999cf85bcdc00d332fbd3734ba03e48382c36fa4d5af5df817395bd9ea",
        ..b
    };
    let e = V4 {
        scope: "20231216/cb-123/oss-cloudbox",
        signature: "94ce1f12c17d148ea681030275a94449d3357f5b5b21133996eec80af3e08a43",
        ..b
    };
    for (vector, seconds) in [
        (&b, 1_702_743_657),
        (&c, 1_702_747_512),
        (&d, 1_702_784_856),
        (&e, 1_702_743_657),
    ] {
        for separator in [",", ", "] {
            assert_eq!(
                outcome(&vector.sample(separator), seconds, None),
                Ok(()),
                "{}",
                vector.signature
            );
        }
    }
    let sample = b.sample(",");
    assert_eq!(
        outcome(&sample, 1_702_743_657 + 901, None),
        Err(Code::RequestTimeTooSkewed)
    );
    assert_eq!(
        outcome(&sample, 1_702_743_657, Some("cn-beijing")),
        Err(Code::InvalidArgument)
    );
    assert_eq!(outcome(&sample, 1_702_743_657, Some("cn-hangzhou")), Ok(()));
    let no_token = V4 { more: "", ..d };
    assert_eq!(
        outcome(&no_token.sample(","), 1_702_784_856, None),
        Err(Code::InvalidToken)
    );
}

#[test]
fn oss_v4_example_of_the_documentation() {
    let sample = Sample::new(
        "examplebucket",
        "PUT /exampleobject HTTP/1.1\nContent-Disposition: attachment\nContent-Length: 3\n\
         Content-MD5: ICy5YqxZB1uWSwcVLSNLcA==\nContent-Type: text/plain\n\
         x-oss-content-sha256: UNSIGNED-PAYLOAD\nx-oss-date: 20250411T064124Z\n\
         Authorization: OSS4-HMAC-SHA256 Credential=ak/20250411/cn-hangzhou/oss/aliyun_v4_request,\
         AdditionalHeaders=content-disposition;content-length,Signature=0",
    );
    let subject = sample.subject();
    let Scheme::OssV4(parameters) = evidence(&subject).expect("well formed").scheme else {
        panic!("another scheme")
    };
    let computed = oss_v4::compute(&subject, &parameters, "yourAccessKeySecret");
    let hash = "c46d96390bdbc2d739ac9363293ae9d710b14e48081fcb22cd8ad54b63136eca";
    assert_eq!(mac::hash(&computed.canonical_request), hash);
    assert_eq!(
        computed.signature,
        "d3694c2dfc5371ee6acd35e88c4871ac95a7ba01d3a2f476768fe61218590097"
    );
}

#[test]
fn oss_v4_presigned_vectors() {
    let sample = |key: &str, time: &str, token: &str, signature: &str| {
        let text = format!(
            "{V4_LINE}&x-oss-signature-version=OSS4-HMAC-SHA256&x-oss-expires=599&x-oss-date={time}\
             &x-oss-credential={key}%2F20231217%2Fcn-hangzhou%2Foss%2Faliyun_v4_request{token}\
             &x-oss-signature={signature} HTTP/1.1\n\
             x-oss-head1: value\ncontent-type: application/octet-stream"
        );
        Sample::new("bucket", &text)
    };
    let f = sample(
        "ak",
        "20231217T025437Z",
        "",
        "a39966c61718be0d5b14e668088b3fa07601033f6518ac7b523100014269c0fe",
    );
    assert_eq!(outcome(&f, 1_702_781_677, None), Ok(()));
    assert_eq!(
        outcome(&f, 1_702_781_677 + 600, None),
        Err(Code::AccessDenied)
    );
    // The key id is part of the signed query, so that of the vector must be used with a token.
    let g = sample(
        "ak",
        "20231217T035628Z",
        "&x-oss-security-token=token",
        "3817ac9d206cd6dfc90f1c09c00be45005602e55898f26f5ddb06d7892e1f8b5",
    );
    let subject = g.subject();
    let found = evidence(&subject).expect("well formed");
    let Scheme::OssV4(parameters) = &found.scheme else {
        panic!("another scheme")
    };
    assert_eq!(
        oss_v4::compute(&subject, parameters, "sk").signature,
        found.signature
    );
}
