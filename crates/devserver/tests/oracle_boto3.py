"""Drives the server with boto3: arguments are URL, key id, secret. Any surprise is a traceback."""

import hashlib
import io
import os
import socket
import sys
import tempfile
import urllib.request

import boto3
from boto3.s3.transfer import TransferConfig
from botocore.config import Config
from botocore.exceptions import ClientError

URL, KEY_ID, SECRET = sys.argv[1:4]
REGION = "eu-test-1"
MIB = 1 << 20

# Names below localhost are not resolved everywhere.
_getaddrinfo = socket.getaddrinfo
socket.getaddrinfo = lambda host, *rest, **more: _getaddrinfo(
    "127.0.0.1" if str(host).endswith("localhost") else host, *rest, **more
)


def client(url=URL, key_id=KEY_ID, secret=SECRET, region=REGION, token=None, style="path", **config):
    return boto3.client(
        "s3",
        endpoint_url=url,
        aws_access_key_id=key_id,
        aws_secret_access_key=secret,
        aws_session_token=token,
        region_name=region,
        config=Config(s3={"addressing_style": style}, retries={"max_attempts": 1}, **config),
    )


def refused(call, *codes):
    try:
        call()
    except ClientError as error:
        code = error.response["Error"]["Code"]
        assert code in codes, f"{code} is not one of {codes}"
        return error.response
    raise AssertionError(f"went through; {codes} was expected")


def objects(s3):
    bucket = "boto"
    s3.create_bucket(Bucket=bucket)
    assert bucket in [entry["Name"] for entry in s3.list_buckets()["Buckets"]]
    s3.head_bucket(Bucket=bucket)
    s3.get_bucket_location(Bucket=bucket)
    keys = ["plain", "a b+c/é&<>\"'.txt", "dir/", "//x", "dots/../.", "percent%41", "tilde~*'()!", "q?m#h"]
    for key in keys:
        body = key.encode() * 100
        put = s3.put_object(Bucket=bucket, Key=key, Body=body, Metadata={"name": "v 1"}, ContentType="text/x")
        assert put["ETag"] == '"' + hashlib.md5(body).hexdigest() + '"'
        got = s3.get_object(Bucket=bucket, Key=key)
        assert got["Body"].read() == body and got["Metadata"] == {"name": "v 1"}
        assert got["ContentType"] == "text/x" and got["ETag"] == put["ETag"]
    part = s3.get_object(Bucket=bucket, Key="plain", Range="bytes=3-8")
    assert part["Body"].read() == (b"plain" * 100)[3:9] and part["ContentRange"] == "bytes 3-8/500"
    listed = [entry["Key"] for entry in s3.list_objects_v2(Bucket=bucket)["Contents"]]
    assert listed == sorted(keys, key=str.encode), listed
    assert [entry["Key"] for entry in s3.list_objects(Bucket=bucket)["Contents"]] == listed
    refused(lambda: s3.get_object(Bucket=bucket, Key="none"), "NoSuchKey")
    refused(lambda: s3.head_object(Bucket=bucket, Key="none"), "404")
    refused(lambda: s3.get_object(Bucket="no-bucket", Key="none"), "NoSuchBucket")
    refused(lambda: s3.get_object(Bucket=bucket, Key="plain", IfMatch='"x"'), "PreconditionFailed")
    refused(lambda: s3.put_object(Bucket=bucket, Key="plain", Body=b"", IfNoneMatch="*"), "PreconditionFailed")
    refused(lambda: s3.get_object(Bucket=bucket, Key="plain", Range="bytes=500-"), "InvalidRange")
    copied = s3.copy_object(Bucket=bucket, Key="copy +é", CopySource={"Bucket": bucket, "Key": keys[1]})
    assert copied["CopyObjectResult"]["ETag"]
    assert s3.get_object(Bucket=bucket, Key="copy +é")["Body"].read() == keys[1].encode() * 100
    replaced = {"Metadata": {"name": "2"}, "MetadataDirective": "REPLACE"}
    s3.copy_object(Bucket=bucket, Key="plain", CopySource={"Bucket": bucket, "Key": "plain"}, **replaced)
    assert s3.head_object(Bucket=bucket, Key="plain")["Metadata"] == {"name": "2"}
    deleted = s3.delete_objects(Bucket=bucket, Delete={"Objects": [{"Key": key} for key in keys + ["none"]]})
    assert len(deleted["Deleted"]) == len(keys) + 1
    s3.delete_object(Bucket=bucket, Key="copy +é")
    assert s3.list_objects_v2(Bucket=bucket)["KeyCount"] == 0
    s3.delete_bucket(Bucket=bucket)
    refused(lambda: s3.head_bucket(Bucket=bucket), "404")


def pages(s3):
    s3.create_bucket(Bucket="pages")
    for index in range(25):
        s3.put_object(Bucket="pages", Key=f"d{index % 5}/{index:03}", Body=b"")
    for operation in ("list_objects_v2", "list_objects"):
        paginator = s3.get_paginator(operation)
        found = [
            entry["Key"]
            for page in paginator.paginate(Bucket="pages", PaginationConfig={"PageSize": 4})
            for entry in page.get("Contents", [])
        ]
        assert found == sorted(f"d{index % 5}/{index:03}" for index in range(25)), found
        prefixes = [
            entry["Prefix"]
            for page in paginator.paginate(Bucket="pages", Delimiter="/", PaginationConfig={"PageSize": 2})
            for entry in page.get("CommonPrefixes", [])
        ]
        assert prefixes == [f"d{index}/" for index in range(5)], prefixes


def checksums(s3):
    s3.create_bucket(Bucket="sums")
    for algorithm in ("CRC32", "SHA1", "SHA256"):
        put = s3.put_object(Bucket="sums", Key="k", Body=b"hello", ChecksumAlgorithm=algorithm)
        head = s3.head_object(Bucket="sums", Key="k", ChecksumMode="ENABLED")
        name = f"Checksum{algorithm}"
        assert put[name] == head[name] and head["ChecksumType"] == "FULL_OBJECT"
        assert s3.get_object(Bucket="sums", Key="k", ChecksumMode="ENABLED")["Body"].read() == b"hello"
    refused(lambda: s3.put_object(Bucket="sums", Key="k", Body=b"hello", ChecksumCRC32="AAAAAA=="), "BadDigest")
    refused(lambda: s3.put_object(Bucket="sums", Key="k", Body=b"x", ContentMD5="AAAAAAAAAAAAAAAAAAAAAA=="), "BadDigest")


def multipart(s3):
    s3.create_bucket(Bucket="parts")
    body = os.urandom(17 * MIB + 3)
    config = TransferConfig(multipart_threshold=5 * MIB, multipart_chunksize=5 * MIB)
    s3.upload_fileobj(io.BytesIO(body), "parts", "big", Config=config)
    with tempfile.TemporaryFile() as file:
        s3.download_fileobj("parts", "big", file, Config=config)
        file.seek(0)
        assert file.read() == body
    s3.copy({"Bucket": "parts", "Key": "big"}, "parts", "copy", Config=config)
    assert s3.get_object(Bucket="parts", Key="copy")["Body"].read() == body
    head = s3.head_object(Bucket="parts", Key="big", PartNumber=2)
    assert (head["ContentLength"], head["PartsCount"]) == (5 * MIB, 4)
    whole = {"ChecksumAlgorithm": "CRC32", "ChecksumType": "FULL_OBJECT"}
    upload = {"Bucket": "parts", "Key": "whole"}
    upload["UploadId"] = s3.create_multipart_upload(**upload, **whole)["UploadId"]
    first = s3.upload_part(**upload, PartNumber=1, Body=body[: 5 * MIB], ChecksumAlgorithm="CRC32")
    last = s3.upload_part(**upload, PartNumber=2, Body=b"tail", ChecksumAlgorithm="CRC32")
    assert [part["Size"] for part in s3.list_parts(**upload)["Parts"]] == [5 * MIB, 4]
    assert s3.list_multipart_uploads(Bucket="parts")["Uploads"][0]["Key"] == "whole"
    chosen = [
        {"PartNumber": number, "ETag": part["ETag"], "ChecksumCRC32": part["ChecksumCRC32"]}
        for number, part in ((1, first), (2, last))
    ]
    done = s3.complete_multipart_upload(**upload, MultipartUpload={"Parts": chosen}, ChecksumType="FULL_OBJECT")
    assert done["ChecksumType"] == "FULL_OBJECT" and done["ETag"].endswith('-2"')
    got = s3.get_object(Bucket="parts", Key="whole", ChecksumMode="ENABLED")
    assert got["ChecksumCRC32"] == done["ChecksumCRC32"] and got["Body"].read() == body[: 5 * MIB] + b"tail"
    upload = {"Bucket": "parts", "Key": "small"}
    upload["UploadId"] = s3.create_multipart_upload(**upload)["UploadId"]
    tags = [s3.upload_part(**upload, PartNumber=n, Body=b"small")["ETag"] for n in (1, 2)]
    chosen = [{"PartNumber": n + 1, "ETag": tag} for n, tag in enumerate(tags)]
    refused(lambda: s3.complete_multipart_upload(**upload, MultipartUpload={"Parts": chosen}), "EntityTooSmall")
    refused(lambda: s3.complete_multipart_upload(**upload, MultipartUpload={"Parts": chosen[::-1]}), "InvalidPartOrder")
    s3.abort_multipart_upload(**upload)
    refused(lambda: s3.upload_part(**upload, PartNumber=1, Body=b""), "NoSuchUpload")


def presigned(s3):
    s3.create_bucket(Bucket="urls")
    place = {"Bucket": "urls", "Key": "a b+é"}
    url = s3.generate_presigned_url("put_object", Params=place, ExpiresIn=60)
    urllib.request.urlopen(urllib.request.Request(url, data=b"via url", method="PUT", headers={"Content-Type": ""}))
    url = s3.generate_presigned_url("get_object", Params=place, ExpiresIn=60)
    assert urllib.request.urlopen(url).read() == b"via url"
    for wrong in (url.replace("X-Amz-Expires=60", "X-Amz-Expires=61"), url.split("?")[0]):
        try:
            urllib.request.urlopen(wrong)
            raise AssertionError("a wrong URL went through")
        except urllib.error.HTTPError as error:
            assert error.code == 403, error


def wrong_keys():
    refused(lambda: client(secret="wrong").list_buckets(), "SignatureDoesNotMatch")
    refused(lambda: client(key_id="nobody").list_buckets(), "InvalidAccessKeyId")
    refused(lambda: client(token="unexpected").list_buckets(), "InvalidToken")
    response = refused(lambda: client(region="us-test-2").list_buckets(), "AuthorizationHeaderMalformed")
    assert response["Error"]["Region"] == REGION
    assert client(key_id="temporary", token="session/token+=").list_buckets()
    refused(lambda: client(key_id="temporary", token="another").list_buckets(), "InvalidToken")


def main():
    s3 = client()
    objects(s3)
    objects(client(url=URL.replace("127.0.0.1", "localhost"), style="virtual"))
    pages(s3)
    checksums(s3)
    multipart(s3)
    presigned(s3)
    wrong_keys()


main()
