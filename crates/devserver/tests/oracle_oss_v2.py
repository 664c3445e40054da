"""Drives the server with alibabacloud-oss-v2, the second official OSS SDK: arguments are URL, key
id, secret."""

import os
import sys
import urllib.request

import alibabacloud_oss_v2 as oss

URL, KEY_ID, SECRET = sys.argv[1:4]
REGION = "eu-test-1"
KIB = 1 << 10


def client(version, key_id=KEY_ID, secret=SECRET, region=REGION):
    config = oss.config.load_default()
    config.credentials_provider = oss.credentials.StaticCredentialsProvider(key_id, secret)
    config.region = region
    config.endpoint = URL
    config.use_path_style = True
    config.signature_version = version
    config.retry_max_attempts = 1
    return oss.Client(config)


def refused(call, status, code):
    try:
        call()
    except oss.exceptions.OperationError as error:
        service = error.unwrap()
        assert (service.status_code, service.code) == (status, code), service
        return
    raise AssertionError(f"went through; {code} was expected")


def exercise(c, bucket):
    c.put_bucket(oss.PutBucketRequest(bucket=bucket))
    key = "a b+c/é&<>\"'.txt"
    body = os.urandom(300 * KIB)
    put = c.put_object(oss.PutObjectRequest(bucket=bucket, key=key, body=body, metadata={"name": "v"}))
    got = c.get_object(oss.GetObjectRequest(bucket=bucket, key=key))
    assert got.body.content == body and got.metadata == {"name": "v"} and got.hash_crc64 == put.hash_crc64
    head = c.head_object(oss.HeadObjectRequest(bucket=bucket, key=key))
    assert head.content_length == len(body) and head.etag == put.etag
    begun = c.initiate_multipart_upload(oss.InitiateMultipartUploadRequest(bucket=bucket, key="big"))
    parts = []
    for number, start in enumerate(range(0, len(body), 100 * KIB), 1):
        part = c.upload_part(oss.UploadPartRequest(
            bucket=bucket, key="big", upload_id=begun.upload_id, part_number=number,
            body=body[start : start + 100 * KIB],
        ))
        parts.append(oss.UploadPart(part_number=number, etag=part.etag))
    c.complete_multipart_upload(oss.CompleteMultipartUploadRequest(
        bucket=bucket, key="big", upload_id=begun.upload_id,
        complete_multipart_upload=oss.CompleteMultipartUpload(parts=parts),
    ))
    assert c.get_object(oss.GetObjectRequest(bucket=bucket, key="big")).body.content == body
    c.append_object(oss.AppendObjectRequest(bucket=bucket, key="log", position=0, body=b"one"))
    c.put_symlink(oss.PutSymlinkRequest(bucket=bucket, key="link", symlink_target="log"))
    assert c.get_object(oss.GetObjectRequest(bucket=bucket, key="link")).body.content == b"one"
    listed = [entry.key for page in c.list_objects_v2_paginator().iter_page(
        oss.ListObjectsV2Request(bucket=bucket, max_keys=2)) for entry in page.contents]
    assert listed == sorted([key, "big", "log", "link"]), listed
    url = c.presign(oss.GetObjectRequest(bucket=bucket, key=key)).url
    assert urllib.request.urlopen(url).read() == body
    c.delete_multiple_objects(oss.DeleteMultipleObjectsRequest(
        bucket=bucket, objects=[oss.DeleteObject(key=key), oss.DeleteObject(key="log")],
    ))
    refused(lambda: c.get_object(oss.GetObjectRequest(bucket=bucket, key=key)), 404, "NoSuchKey")
    # Errors of HEAD carry their document in a header.
    refused(lambda: c.head_object(oss.HeadObjectRequest(bucket=bucket, key=key)), 404, "NoSuchKey")


def main():
    for version in ("v1", "v4"):
        exercise(client(version), f"oss-sdk-{version}")
        ask = oss.GetBucketInfoRequest(bucket=f"oss-sdk-{version}")
        assert client(version).get_bucket_info(ask).bucket_info.name
        refused(lambda: client(version, secret="wrong").get_bucket_info(ask), 403, "SignatureDoesNotMatch")
        refused(lambda: client(version, key_id="nobody").get_bucket_info(ask), 403, "InvalidAccessKeyId")
    refused(lambda: client("v4", region="us-test-2").get_bucket_info(ask), 400, "InvalidArgument")


main()
