//! Clients that we did not write sign, send and check what they get back: boto3 for S3, both
//! official Python SDKs for OSS. They are installed into a cache directory on the first run;
//! where that is impossible a line says so and the test counts as passed.

// Tests find their tools through the environment.
#![allow(clippy::disallowed_methods)]

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Output},
    sync::OnceLock,
};

use penstock_devserver::{Credentials, Server, Settings};

const PACKAGES: [&str; 3] = [
    "boto3==1.44.5",
    "oss2==2.19.1",
    "alibabacloud-oss-v2==1.4.1",
];
const KEY_ID: &str = "tester";
const SECRET: &str = "a/secret+with=signs";

fn cache_directory() -> PathBuf {
    let fallback = || Path::new(env!("CARGO_TARGET_TMPDIR")).join("../oracles");
    env::var_os("PENSTOCK_TEST_CACHE")
        .map_or_else(fallback, |cache| Path::new(&cache).join("oracles"))
}

/// A Python with the SDKs, or why there is none.
fn python() -> Result<&'static Path, &'static str> {
    static PYTHON: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let prepared = PYTHON.get_or_init(prepare);
    prepared.as_deref().map_err(String::as_str)
}

fn prepare() -> Result<PathBuf, String> {
    let directory = cache_directory();
    let (python, stamp) = (directory.join("bin/python"), directory.join("packages"));
    let wanted = PACKAGES.join("\n");
    if fs::read_to_string(&stamp).is_ok_and(|have| have == wanted) {
        return Ok(python);
    }
    run(Command::new("python3").args(["-m", "venv"]).arg(&directory))?;
    run(Command::new(&python)
        .args(["-m", "pip", "install", "--quiet"])
        .args(PACKAGES))?;
    fs::write(&stamp, wanted).map_err(|error| error.to_string())?;
    Ok(python)
}

fn run(command: &mut Command) -> Result<Output, String> {
    let output = command
        .output()
        .map_err(|error| format!("{command:?}: {error}"))?;
    if output.status.success() {
        return Ok(output);
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("{command:?}: {}\n{said}", output.status))
}

fn consult(script: &str) {
    let python = match python() {
        Ok(python) => python,
        Err(why) => {
            penstock_skips::skipped(format_args!("{script} needs Python with pip: {why}"));
            return;
        }
    };
    let temporary = Credentials {
        token: Some("session/token+=".to_owned()),
        ..Credentials::new("temporary", SECRET)
    };
    let server = Server::start(Settings {
        credentials: vec![Credentials::new(KEY_ID, SECRET), temporary],
        verify_signatures: true,
        region: Some("eu-test-1".to_owned()),
        ..Settings::default()
    })
    .expect("a server");
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests")
        .join(script);
    let mut command = Command::new(python);
    command.arg(path).args([&server.url(), KEY_ID, SECRET]);
    for name in [
        "AWS_CA_BUNDLE",
        "http_proxy",
        "HTTP_PROXY",
        "all_proxy",
        "ALL_PROXY",
    ] {
        command.env_remove(name);
    }
    run(&mut command).expect("the script finds nothing wrong");
}

#[test]
fn boto3_agrees() {
    consult("oracle_boto3.py");
}

#[test]
fn oss2_agrees() {
    consult("oracle_oss2.py");
}

#[test]
fn the_second_oss_sdk_agrees() {
    consult("oracle_oss_v2.py");
}
