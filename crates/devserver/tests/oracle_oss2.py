"""Drives the server with oss2, the first official OSS SDK: arguments are URL, key id, secret."""

import hashlib
import os
import sys
import tempfile
import urllib.error
import urllib.request

import oss2
from oss2.models import PartInfo

URL, KEY_ID, SECRET = sys.argv[1:4]
REGION = "eu-test-1"
KIB = 1 << 10

oss2.defaults.request_retries = 0


def bucket(name, auth, region=REGION):
    return oss2.Bucket(auth, URL, name, region=region, is_path_style=True)


def refused(call, status, *codes):
    try:
        call()
    except oss2.exceptions.OssError as error:
        assert error.status == status and (not codes or error.code in codes), error
        return error
    raise AssertionError(f"went through; {codes} was expected")


def objects(b):
    b.create_bucket()
    info = b.get_bucket_info()
    assert info.name == b.bucket_name and info.location == f"oss-{REGION}"
    assert b.get_bucket_location().location == f"oss-{REGION}"
    assert b.get_bucket_acl().acl == "private"
    keys = ["plain", "a b+c/é&<>\"'.txt", "dir/", "dots/../.", "percent%41", "tilde~*'()!", "q?m#h"]
    for key in keys:
        body = key.encode() * 100
        put = b.put_object(key, body, headers={"x-oss-meta-name": "v", "Content-Type": "text/x"})
        assert put.etag.strip('"').lower() == hashlib.md5(body).hexdigest() and put.crc is not None
        got = b.get_object(key)
        assert got.read() == body and got.client_crc == got.server_crc
        assert got.headers["x-oss-meta-name"] == "v" and got.content_type == "text/x"
    assert b.get_object("plain", byte_range=(3, 8)).read() == (b"plain" * 100)[3:9]
    # Out of range: the whole object, unless the standard behaviour is asked for.
    assert len(b.get_object("plain", byte_range=(400, 900)).read()) == 500
    standard = {"x-oss-range-behavior": "standard"}
    assert len(b.get_object("plain", byte_range=(400, 900), headers=standard).read()) == 100
    refused(lambda: b.get_object("plain", byte_range=(500, 900), headers=standard).read(), 416, "InvalidRange")
    meta = b.get_object_meta("plain")
    assert meta.content_length == 500 and meta.etag
    head = b.head_object("plain")
    assert head.object_type == "Normal" and head.server_crc
    listed = [entry.key for entry in oss2.ObjectIterator(b, max_keys=2)]
    assert listed == sorted(keys, key=str.encode), listed
    assert [entry.key for entry in oss2.ObjectIteratorV2(b, max_keys=2)] == listed
    page = b.list_objects_v2(delimiter="/", fetch_owner=True)
    assert page.prefix_list == ["a b+c/", "dir/", "dots/"] and page.object_list[0].owner.id
    assert page.object_list[0].type == "Normal"
    assert b.get_bucket_stat().object_count == len(keys)
    refused(lambda: b.get_object("none"), 404, "NoSuchKey")
    refused(lambda: b.head_object("none"), 404)
    forbid = {"x-oss-forbid-overwrite": "true"}
    refused(lambda: b.put_object("plain", b"", headers=forbid), 409, "FileAlreadyExists")
    refused(lambda: b.put_object("/leading", b""), 400, "InvalidObjectName")
    copied = b.copy_object(b.bucket_name, keys[1], "copy +é")
    assert copied.etag and b.get_object("copy +é").read() == keys[1].encode() * 100
    b.update_object_meta("plain", {"x-oss-meta-name": "w"})
    assert b.head_object("plain").headers["x-oss-meta-name"] == "w"
    assert sorted(b.batch_delete_objects(keys + ["copy +é"]).deleted_keys) == sorted(keys + ["copy +é"])


def appends_and_links(b):
    first = b.append_object("log", 0, b"one", init_crc=0)
    assert first.next_position == 3
    second = b.append_object("log", 3, b"two", init_crc=first.crc)
    assert second.next_position == 6 and b.get_object("log").read() == b"onetwo"
    error = refused(lambda: b.append_object("log", 3, b"x"), 409, "PositionNotEqualToLength")
    assert error.next_position == 6
    assert b.head_object("log").object_type == "Appendable"
    b.put_object("normal", b"x")
    refused(lambda: b.append_object("normal", 1, b"x"), 409, "ObjectNotAppendable")
    b.put_symlink("normal", "li nk+é")
    assert b.get_symlink("li nk+é").target_key == "normal"
    assert b.get_object("li nk+é").read() == b"x"
    assert b.head_object("li nk+é").object_type == "Symlink"
    b.put_symlink("nothing é", "dangling")
    assert b.get_symlink("dangling").target_key == "nothing é"
    refused(lambda: b.get_object("dangling"), 404, "SymlinkTargetNotExist")
    refused(lambda: b.get_symlink("normal"), 400, "NotSymlink")


def multipart(b):
    body = os.urandom(777 * KIB)
    with tempfile.NamedTemporaryFile() as file, tempfile.TemporaryDirectory() as store:
        file.write(body)
        file.flush()
        sizes = {"multipart_threshold": 100 * KIB, "part_size": 100 * KIB, "num_threads": 3}
        where = oss2.ResumableStore(root=store)
        oss2.resumable_upload(b, "big", file.name, store=where, **sizes)
        assert b.get_object("big").read() == body
        oss2.resumable_download(
            b, "big", file.name + "d", multiget_threshold=100 * KIB, part_size=100 * KIB,
            num_threads=3, store=oss2.ResumableDownloadStore(root=store),
        )
        with open(file.name + "d", "rb") as back:
            assert back.read() == body
        os.remove(file.name + "d")
    assert b.head_object("big").object_type == "Multipart"
    upload = b.init_multipart_upload("joined").upload_id
    first = b.upload_part_copy(b.bucket_name, "big", (0, 200 * KIB - 1), "joined", upload, 1)
    second = b.upload_part("joined", upload, 2, b"tail")
    assert [part.part_number for part in oss2.PartIterator(b, "joined", upload)] == [1, 2]
    assert [found.upload_id for found in oss2.MultipartUploadIterator(b)] == [upload]
    parts = [PartInfo(1, first.etag), PartInfo(2, second.etag)]
    b.complete_multipart_upload("joined", upload, parts)
    got = b.get_object("joined")
    assert got.read() == body[: 200 * KIB] + b"tail" and got.client_crc == got.server_crc
    upload = b.init_multipart_upload("small").upload_id
    parts = [PartInfo(n, b.upload_part("small", upload, n, b"small").etag) for n in (1, 2)]
    refused(lambda: b.complete_multipart_upload("small", upload, parts), 400, "EntityTooSmall")
    b.abort_multipart_upload("small", upload)
    refused(lambda: b.upload_part("small", upload, 1, b""), 404, "NoSuchUpload")


def presigned(b):
    b.put_object("via url +é", b"body")
    url = b.sign_url("GET", "via url +é", 60)
    assert urllib.request.urlopen(url).read() == b"body"
    try:
        urllib.request.urlopen(url.split("?")[0])
        raise AssertionError("an unsigned URL went through")
    except urllib.error.HTTPError as error:
        assert error.code == 403, error


def wrong_keys(auth_type):
    ask = lambda auth, **more: (lambda: bucket("any-bucket", auth, **more).get_bucket_info())
    refused(ask(auth_type(KEY_ID, "wrong")), 403, "SignatureDoesNotMatch")
    refused(ask(auth_type("nobody", SECRET)), 403, "InvalidAccessKeyId")
    refused(ask(oss2.AnonymousAuth()), 403, "AccessDenied")


def main():
    for name, auth_type in (("v1", oss2.Auth), ("v4", oss2.AuthV4)):
        b = bucket(f"oss2-{name}", auth_type(KEY_ID, SECRET))
        objects(b)
        appends_and_links(b)
        multipart(b)
        presigned(b)
        wrong_keys(auth_type)
        assert f"oss2-{name}" in [entry.name for entry in oss2.BucketIterator(oss2.Service(
            auth_type(KEY_ID, SECRET), URL, region=REGION))]
        sts = oss2.StsAuth("temporary", SECRET, "session/token+=", auth_version=name)
        assert bucket(f"oss2-{name}", sts).get_bucket_info().name
        assert urllib.request.urlopen(bucket(f"oss2-{name}", sts).sign_url("GET", "log", 60)).read()
        wrong = oss2.StsAuth("temporary", SECRET, "another", auth_version=name)
        refused(lambda: bucket(f"oss2-{name}", wrong).get_bucket_info(), 403, "InvalidSecurityToken")
    other = bucket("oss2-v4", oss2.AuthV4(KEY_ID, SECRET), region="us-test-2")
    refused(lambda: other.get_bucket_info(), 400, "InvalidArgument")


main()
