//! Published examples.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::{
    oss_v1::oss_v1_signature,
    oss_v4::{canonical_request, oss_v4_signature},
    *,
};

fn at(seconds: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(seconds)
}

mod aws {
    use super::*;

    const SECRET: &str = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY";
    const SCOPE: AwsScope<'_> = AwsScope {
        region: "us-east-1",
        service: "s3",
    };
    const EMPTY: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    const HOST: (&str, &str) = ("host", "examplebucket.s3.amazonaws.com");
    /// 2013-05-24.
    const TIME: u64 = 1_369_353_600;

    fn signature(request: &SignedRequest<'_>) -> String {
        let key = aws_signing_key(SECRET, "20130524", SCOPE);
        let value = aws_authorization(request, "AKIAIOSFODNN7EXAMPLE", &key, SCOPE, at(TIME));
        value.rsplit('=').next().expect("a signature").to_owned()
    }

    fn get(path: &str, query: &str) -> String {
        let headers = [
            HOST,
            ("x-amz-content-sha256", EMPTY),
            ("x-amz-date", "20130524T000000Z"),
        ];
        signature(&SignedRequest {
            method: "GET",
            path,
            query,
            headers: &headers,
            payload_hash: EMPTY,
        })
    }

    #[test]
    fn get_object() {
        let headers = [
            HOST,
            ("x-amz-date", "20130524T000000Z"),
            ("x-amz-content-sha256", EMPTY),
            ("range", "bytes=0-9"),
        ];
        let request = SignedRequest {
            method: "GET",
            path: "/test.txt",
            query: "",
            headers: &headers,
            payload_hash: EMPTY,
        };
        let key = aws_signing_key(SECRET, "20130524", SCOPE);
        assert_eq!(
            aws_authorization(&request, "AKIAIOSFODNN7EXAMPLE", &key, SCOPE, at(TIME)),
            "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request, \
             SignedHeaders=host;range;x-amz-content-sha256;x-amz-date, \
             Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"
        );
    }

    #[test]
    fn put_object() {
        let hash = "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072";
        let headers = [
            HOST,
            ("date", "Fri, 24 May 2013 00:00:00 GMT"),
            ("x-amz-content-sha256", hash),
            ("x-amz-date", "20130524T000000Z"),
            ("x-amz-storage-class", "REDUCED_REDUNDANCY"),
        ];
        let request = SignedRequest {
            method: "PUT",
            path: &encode_path("/test$file.text"),
            query: "",
            headers: &headers,
            payload_hash: hash,
        };
        assert_eq!(
            signature(&request),
            "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd"
        );
    }

    #[test]
    fn get_bucket_lifecycle() {
        assert_eq!(
            get("/", &Query::new().flag("lifecycle").encoded("=")),
            "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"
        );
    }

    #[test]
    fn list_objects() {
        let query = Query::new().with("prefix", "J").with("max-keys", "2");
        assert_eq!(
            get("/", &query.encoded("=")),
            "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"
        );
    }

    #[test]
    fn presigned_get() {
        let query = Query::new()
            .with("X-Amz-Algorithm", "AWS4-HMAC-SHA256")
            .with(
                "X-Amz-Credential",
                "AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request",
            )
            .with("X-Amz-Date", "20130524T000000Z")
            .with("X-Amz-Expires", "86400")
            .with("X-Amz-SignedHeaders", "host");
        let request = SignedRequest {
            method: "GET",
            path: "/test.txt",
            query: &query.encoded("="),
            headers: &[HOST],
            payload_hash: UNSIGNED_PAYLOAD,
        };
        assert_eq!(
            signature(&request),
            "aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404"
        );
    }
}

mod oss_v1 {
    use super::*;

    const DATE: &str = "Wed, 28 Dec 2022 10:27:41 GMT";

    fn signature(method: &str, headers: &[(&str, &str)], date: &str, resource: &str) -> String {
        let request = OssV1Request {
            method,
            headers,
            date,
            resource,
        };
        oss_v1_signature(&request, "sk")
    }

    fn put_nelson(query: &Query) -> String {
        let headers = [
            ("content-md5", "eB5eJF1ptWaXm4bijSPyxw=="),
            ("content-type", "text/html"),
            ("x-oss-date", DATE),
            ("x-oss-meta-magic", "abracadabra"),
            ("x-oss-meta-author", "alice"),
        ];
        let resource = oss_v1_resource("examplebucket", "nelson", query, &[]);
        signature("PUT", &headers, DATE, &resource)
    }

    fn get_bucket(query: &Query) -> String {
        let resource = oss_v1_resource("examplebucket", "", query, &["resourceGroup"]);
        signature("GET", &[("x-oss-date", DATE)], DATE, &resource)
    }

    #[test]
    fn v1_a_put_with_metadata() {
        let request = OssV1Request {
            method: "PUT",
            headers: &[
                (
                    "content-md5",
                    "ODBGOERFMDMzQTczRUY3NUE3NzA5QzdFNUYzMDQxNEM=",
                ),
                ("content-type", "text/html"),
                ("x-oss-magic", "abracadabra"),
                ("x-oss-meta-author", "foo@bar.com"),
            ],
            date: "Thu, 17 Nov 2005 18:49:58 GMT",
            resource: &oss_v1_resource("oss-example", "nelson", &Query::new(), &[]),
        };
        assert_eq!(
            oss_v1_authorization(
                &request,
                "44CF9590006BF252F707",
                "OtxrzxIsfpFjA7SwPzILwy8Bw21TLhquhboDYROV"
            ),
            "OSS 44CF9590006BF252F707:26NBxoKdsyly4EDv6inkoDft/yA="
        );
    }

    #[test]
    fn v1_b_presigned_get() {
        let request = OssV1Request {
            method: "GET",
            headers: &[],
            date: "1141889120",
            resource: "/oss-example/oss-api.pdf",
        };
        assert_eq!(
            oss_v1_signature(&request, "OtxrzxIsfpFjA7SwPzILwy8Bw21TLhquhboDYROV"),
            "EwaNTn1erJGkimiJ9WmXgwnANLc="
        );
    }

    #[test]
    fn v1_c_and_d_put_object_and_its_acl() {
        assert_eq!(put_nelson(&Query::new()), "kSHKmLxlyEAKtZPkJhG9bZb5k7M=");
        assert_eq!(
            put_nelson(&Query::new().flag("acl")),
            "/afkugFbmWDQ967j1vr6zygBLQk="
        );
    }

    #[test]
    fn v1_e_and_f_sub_resources_that_the_caller_adds() {
        let query = Query::new().flag("resourceGroup");
        assert_eq!(get_bucket(&query), "vkQmfuUDyi1uDi3bKt67oemssIs=");
        assert_eq!(
            get_bucket(&query.flag("acl").with("non-resource", "123")),
            "x3E5TgOvl/i7PN618s5mEvpJDYk="
        );
    }

    #[test]
    fn v1_g_and_h_presigned_with_version_and_token() {
        let version = Query::new().with("versionId", "versionId");
        let resource = oss_v1_resource("bucket", "key", &version, &[]);
        assert_eq!(
            signature("GET", &[], "1699807420", &resource),
            "dcLTea+Yh9ApirQ8o8dOPqtvJXQ="
        );
        let token = version.with("security-token", "token");
        let resource = oss_v1_resource("bucket", "key+123", &token, &[]);
        assert_eq!(
            signature("GET", &[], "1699808204", &resource),
            "jzKYRrM5y6Br0dRFPaTGOsbrDhY="
        );
    }
}

mod oss_v4 {
    use super::*;

    const HANGZHOU: OssScope<'_> = OssScope {
        region: "cn-hangzhou",
        product: "oss",
    };

    struct Example<'a> {
        secret: &'a str,
        path: &'a str,
        query: Query,
        headers: Vec<(&'a str, &'a str)>,
        additional: &'a [&'a str],
        scope: OssScope<'a>,
        seconds: u64,
    }

    impl Example<'_> {
        fn check(&self, canonical_hash: &str, signature: &str) {
            let request = OssV4Request {
                request: SignedRequest {
                    method: "PUT",
                    path: &encode_path(self.path),
                    query: &self.query.encoded(""),
                    headers: &self.headers,
                    payload_hash: UNSIGNED_PAYLOAD,
                },
                additional: self.additional,
            };
            let time = at(self.seconds);
            if !canonical_hash.is_empty() {
                assert_eq!(sha256_hex(&canonical_request(&request)), canonical_hash);
            }
            let key = oss_v4_signing_key(self.secret, &basic_date(time), self.scope);
            assert_eq!(
                oss_v4_signature(&request, &key, self.scope, time),
                signature
            );
        }
    }

    fn parameters() -> Query {
        Query::new()
            .with("param1", "value1")
            .with("+param1", "value3")
            .with("|param1", "value4")
            .flag("+param2")
            .flag("|param2")
            .flag("param2")
    }

    fn put<'a>(date: &'a str, seconds: u64, more: &[(&'a str, &'a str)]) -> Example<'a> {
        let mut headers = vec![
            ("content-type", "text/plain"),
            ("x-oss-head1", "value"),
            ("x-oss-content-sha256", UNSIGNED_PAYLOAD),
            ("x-oss-date", date),
        ];
        headers.extend_from_slice(more);
        Example {
            secret: "sk",
            path: "/bucket/1234+-/123/1.txt",
            query: parameters(),
            headers,
            additional: &[],
            scope: HANGZHOU,
            seconds,
        }
    }

    fn presigned<'a>(date: &'a str, seconds: u64, token: Option<&str>) -> Example<'a> {
        let query = parameters()
            .with("x-oss-signature-version", "OSS4-HMAC-SHA256")
            .with("x-oss-date", date)
            .with("x-oss-expires", "599")
            .with(
                "x-oss-credential",
                format!("ak/{}", HANGZHOU.on(at(seconds))),
            )
            .with_some("x-oss-security-token", token);
        Example {
            query,
            headers: vec![
                ("content-type", "application/octet-stream"),
                ("x-oss-head1", "value"),
            ],
            ..put(date, seconds, &[])
        }
    }

    #[test]
    fn v4_a_example_of_the_documentation() {
        Example {
            secret: "yourAccessKeySecret",
            path: "/examplebucket/exampleobject",
            query: Query::new(),
            headers: vec![
                ("content-disposition", "attachment"),
                ("content-length", "3"),
                ("content-md5", "ICy5YqxZB1uWSwcVLSNLcA=="),
                ("content-type", "text/plain"),
                ("x-oss-content-sha256", UNSIGNED_PAYLOAD),
                ("x-oss-date", "20250411T064124Z"),
            ],
            additional: &["content-disposition", "content-length"],
            scope: HANGZHOU,
            seconds: 1_744_353_684,
        }
        .check(
            "c46d96390bdbc2d739ac9363293ae9d710b14e48081fcb22cd8ad54b63136eca",
            "d3694c2dfc5371ee6acd35e88c4871ac95a7ba01d3a2f476768fe61218590097",
        );
    }

    #[test]
    fn v4_b_put_with_strange_parameters() {
        put("20231216T162057Z", 1_702_743_657, &[]).check(
            "f4613657f1b108998e8dbd10a1aa5da621dc2c6e02c9ddec0f163664848704c4",
            "e21d18daa82167720f9b1047ae7e7f1ce7cb77a31e8203a7d5f4624fa0284afe",
        );
    }

    #[test]
    fn v4_c_additional_headers() {
        let more = [("abc", "value"), ("zabc", "value"), ("xyz", "value")];
        Example {
            additional: &["abc", "zabc"],
            ..put("20231216T172512Z", 1_702_747_512, &more)
        }
        .check(
            "16b86004ed2cc3406dd7a13081bd940ef6a5ad49e508da2d4fdf84e8a5dd2145",
            "4a4183c187c07c8947db7620deb0a6b38d9fbdd34187b6dbaccb316fa251212f",
        );
    }

    #[test]
    fn v4_d_security_token() {
        let time = basic_time(at(1_702_784_856));
        put(&time, 1_702_784_856, &[("x-oss-security-token", "token")]).check(
            "69494678fb11579d4ee12996e2796d9e2ba43c34aa4c723c4aec018f3d6b86b8",
            "b94a3f999cf85bcdc00d332fbd3734ba03e48382c36fa4d5af5df817395bd9ea",
        );
    }

    #[test]
    fn v4_e_cloud_box() {
        Example {
            scope: OssScope {
                region: "cb-123",
                product: "oss-cloudbox",
            },
            ..put("20231216T162057Z", 1_702_743_657, &[])
        }
        .check(
            "",
            "94ce1f12c17d148ea681030275a94449d3357f5b5b21133996eec80af3e08a43",
        );
    }

    #[test]
    fn v4_f_and_g_presigned() {
        presigned("20231217T025437Z", 1_702_781_677, None).check(
            "48814c11f278d51662015bf2f896b66ca10b6de0187ed8d952e341bbce0aa336",
            "a39966c61718be0d5b14e668088b3fa07601033f6518ac7b523100014269c0fe",
        );
        presigned("20231217T035628Z", 1_702_785_388, Some("token")).check(
            "458705026c021c95dd317d008cff79df19ce99bf2b241d1ecb20f4d65bb851a5",
            "3817ac9d206cd6dfc90f1c09c00be45005602e55898f26f5ddb06d7892e1f8b5",
        );
    }

    #[test]
    fn the_header_names_what_else_was_signed() {
        let request = OssV4Request {
            request: SignedRequest {
                method: "GET",
                path: "/b/k",
                query: "",
                headers: &[],
                payload_hash: UNSIGNED_PAYLOAD,
            },
            additional: &["host"],
        };
        let value = oss_v4_authorization(&request, "ak", &[0; 32], HANGZHOU, at(0));
        assert!(
            value.starts_with(
                "OSS4-HMAC-SHA256 Credential=ak/19700101/cn-hangzhou/oss/aliyun_v4_request, \
                 AdditionalHeaders=host, Signature="
            ),
            "{value}"
        );
    }
}
