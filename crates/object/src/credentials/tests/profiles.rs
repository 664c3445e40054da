//! Files with profiles are read as the tools read them whose files they are. Where that is impossible nobody
//! else's credentials are taken: those of the machine are there in every test.

use super::{chains::Scene, *};

impl Scene {
    /// Finds `own` in the files, and the machine is not asked.
    async fn finds_own_on_s3(self) {
        let found = find_s3(&self.settings).await;
        assert_eq!(found.expect("found").key_id, "own");
    }

    async fn finds_own_on_oss(self) {
        let found = find_oss(&self.settings).await;
        assert_eq!(found.expect("found").key_id, "own");
    }

    /// Writes a program that prints the key `own` when it is called with `argument`.
    fn with_program(self) -> (Self, String) {
        let path = self.path("print");
        let script = "#!/bin/sh\necho '{\"Version\":1,\"AccessKeyId\":\"'$1'\",\"SecretAccessKey\":\"s\"}'\n";
        write(&path, script, 0o700);
        (self, path.to_str().expect("text").to_owned())
    }
}

/// Keys as they stand in the files of AWS.
const KEYS_OF_AWS: &str = "aws_access_key_id = own\naws_secret_access_key = s\n";

#[tokio::test]
async fn the_default_profile_of_aws_is_found_under_each_of_its_headings() {
    for heading in [
        "[default]",
        "[profile default]",
        "[profile \"default\"]",
        "[ profile  'default' ]",
        "  [default] # the usual one",
        "\u{feff}[default]",
    ] {
        let text = format!("{heading}\n{KEYS_OF_AWS}");
        let scene = Scene::new().await.file(".aws/config", &text);
        scene.finds_own_on_s3().await;
        let text = format!("{heading}\nsso_session = hidden\n");
        let scene = Scene::new().await.file(".aws/config", &text);
        scene.fails_on_s3("`sso_session`").await;
        let (scene, program) = Scene::new().await.with_program();
        let text = format!("{heading}\ncredential_process = {program} own\n");
        scene.file(".aws/config", &text).finds_own_on_s3().await;
    }
}

#[tokio::test]
async fn entries_of_a_profile_count_in_any_case() {
    for file in [".aws/config", ".aws/credentials"] {
        let scene = Scene::new().await.file(
            file,
            "[default]\nAws_Access_Key_Id = own\nAWS_SECRET_ACCESS_KEY = s\n",
        );
        scene.finds_own_on_s3().await;
        let text = "[default]\nROLE_ARN = hidden\nSource_Profile = hidden\n";
        let scene = Scene::new().await.file(file, text);
        scene.fails_on_s3("`role_arn`").await;
    }
    for (file, text) in [
        (
            ".oss/credentials",
            "[default]\nAccessKeyID = own\naccesskeysecret = s\n",
        ),
        (
            ".aliyun/credentials.ini",
            "\u{feff}[default]\nTYPE = access_key\nACCESS_KEY_ID = own\nAccess_Key_Secret = s\n",
        ),
        (
            ".aliyun/config.json",
            "\u{feff}{\"Current\": \"a\", \"Profiles\": [{\"Name\": \"a\", \"Mode\": \"AK\", \
             \"Access_Key_Id\": \"own\", \"ACCESS_KEY_SECRET\": \"s\"}]}",
        ),
    ] {
        let scene = Scene::new().await.file(file, text);
        scene.finds_own_on_oss().await;
    }
    for (file, text) in [
        (".oss/credentials", "[default]\nTYPE = hidden_not\n"),
        (
            ".aliyun/config.json",
            r#"{"current": "a", "profiles": [{"name": "a", "Mode": "hidden_not"}]}"#,
        ),
    ] {
        let scene = Scene::new()
            .await
            .file(file, &text.replace("hidden_not", "RamRoleArn"));
        scene.fails_on_oss("type ramrolearn").await;
    }
}

#[tokio::test]
async fn a_profile_of_several_sections_is_all_of_them() {
    let region = "[default]\nregion = eu-west-1\n";
    for second in ["[default]", "[profile default]"] {
        let text = format!("{region}{second}\nrole_arn = hidden\n[other]\n{KEYS_OF_AWS}");
        let scene = Scene::new().await.file(".aws/config", &text);
        scene.fails_on_s3("`role_arn`").await;
        let text = format!("{region}{second}\nregion = us-east-1\n{KEYS_OF_AWS}");
        let scene = Scene::new().await.file(".aws/config", &text);
        scene.finds_own_on_s3().await;
        let text = format!("[default]\n{KEYS_OF_AWS}{second}\naws_access_key_id = hidden\n");
        let scene = Scene::new().await.file(".aws/config", &text);
        scene.fails_on_s3("two values of `aws_access_key_id`").await;
    }
    let text = "[default]\naccess_key_id = a\n[default]\ntype = ram_role_arn\n";
    let scene = Scene::new().await.file(".aliyun/credentials.ini", text);
    scene.fails_on_oss("type ram_role_arn").await;
    let text =
        r#"{"current": "a", "profiles": [{"name": "a"}, {"name": "a", "mode": "CloudSSO"}]}"#;
    let scene = Scene::new().await.file(".aliyun/config.json", text);
    scene.fails_on_oss("type cloudsso").await;
}

#[tokio::test]
async fn a_role_in_a_profile_is_stronger_than_the_keys_beside_it() {
    let scene = Scene::new()
        .await
        .file(".aws/credentials", &format!("[default]\n{KEYS_OF_AWS}"))
        .file(
            ".aws/config",
            "[default]\nrole_arn = hidden\nsource_profile = default\n",
        );
    scene.fails_on_s3("`role_arn`").await;
}

#[tokio::test]
async fn lines_of_a_profile_are_never_lost_in_others() {
    for text in [
        "[default]\nhidden\nrole_arn = hidden\n",
        "hidden\n[default]\nrole_arn = hidden\n",
        "role_arn = hidden\n",
        "[default] role_arn = hidden\n",
        "[default\nrole_arn = hidden\n",
        "[default]\0\nrole_arn = hidden\n",
    ] {
        let scene = Scene::new().await.file(".aws/config", text);
        scene.fails_on_s3("cannot use").await;
        let scene = Scene::new().await.file(".aliyun/credentials.ini", text);
        scene.fails_on_oss("cannot use").await;
    }
    for text in [
        "[default]\nca_bundle = c:\\hidden\\\nrole_arn = hidden\n",
        "[default]\nregion = 'hidden\nrole_arn = hidden\nx = '\n",
        "[default]\nregion = x\n  role_arn = hidden\n",
        "[default]\ns3 =\n  addressing_style = path\n  [x]\nrole_arn = hidden\n",
        "# [x]\r\n[default]\r\nregion = x\r\nrole_arn: hidden\r\n",
        "[default]\rregion = x\rrole_arn = hidden\r",
    ] {
        let scene = Scene::new().await.file(".aws/config", text);
        scene.fails_on_s3("`role_arn`").await;
    }
    let scene = Scene::new().await;
    let utf16: Vec<u8> = "\u{feff}[default]\nrole_arn = hidden\n"
        .encode_utf16()
        .flat_map(u16::to_le_bytes)
        .collect();
    let scene = scene.file(".aws/config", "");
    std::fs::write(scene.path(".aws/config"), utf16).expect("written");
    scene.fails_on_s3("cannot use").await;
}

#[tokio::test]
async fn values_of_a_profile_may_be_quoted_and_go_on_in_the_next_line() {
    let text = "[default]\naws_access_key_id = \"own\"\n; a comment\naws_secret_access_key = 's'\n";
    let scene = Scene::new().await.file(".aws/credentials", text);
    scene.finds_own_on_s3().await;
    let (scene, program) = Scene::new().await.with_program();
    let text = format!("[default]\ncredential_process = {program}\n    own\n");
    scene.file(".aws/config", &text).finds_own_on_s3().await;
}

#[tokio::test]
async fn headings_that_nearly_name_the_profile_are_not_passed_over() {
    for (file, heading) in [
        (".aws/config", "[Default]"),
        (".aws/config", "[PROFILE default]"),
        (".aws/config", "[profile Default]"),
        (".aws/credentials", "[profile default]"),
        (".aws/credentials", "[DEFAULT]"),
    ] {
        for entries in ["role_arn = hidden\n", "aws_access_key_id = hidden\n"] {
            let text = format!("{heading}\n{entries}");
            let scene = Scene::new().await.file(file, &text);
            scene.fails_on_s3(heading).await;
        }
    }
    let text = "[Default]\naccess_key_id = hidden\n";
    let scene = Scene::new().await.file(".oss/credentials", text);
    scene.fails_on_oss("[Default]").await;
    let text = r#"{"profiles": [{"name": "Default", "mode": "AK", "access_key_id": "hidden"}]}"#;
    let scene = Scene::new().await.file(".aliyun/config.json", text);
    scene.fails_on_oss("[Default]").await;
    let text = format!("[dev]\n{KEYS_OF_AWS}");
    let named = Scene::new().await.with("AWS_PROFILE", "dev");
    named.file(".aws/config", &text).fails_on_s3("[dev]").await;
    // What the tools pass over, too, is in nobody's way where the profile is found.
    let named = Scene::new().await.with("AWS_PROFILE", "dev");
    let named = named.file(".aws/credentials", &text);
    let named = named.file(".aws/config", "[dev]\nrole_arn = hidden\n");
    named.finds_own_on_s3().await;
    let scene = Scene::new().await.file(
        ".aws/config",
        "[sso-session default]\nsso_start_url = hidden\n[services default]\nrole_arn = hidden\n",
    );
    assert_eq!(
        find_s3(&scene.settings).await.expect("found").key_id,
        "node"
    );
}

#[tokio::test]
async fn a_current_profile_that_is_not_there_is_not_passed_over() {
    for (text, part) in [
        (r#"{"current": "hidden_not", "profiles": []}"#, "hidden_not"),
        (r#"{"current": "a", "profiles": {"a": {}}}"#, "`profiles`"),
        (r#"[{"name": "default"}]"#, "cannot use"),
    ] {
        let (text, part) = (
            text.replace("hidden_not", "dev"),
            part.replace("hidden_not", "`dev`"),
        );
        let scene = Scene::new().await.file(".aliyun/config.json", &text);
        scene.fails_on_oss(&part).await;
    }
}

#[tokio::test]
async fn half_a_profile_of_alibaba_is_not_passed_over() {
    let text = "[default]\nrole_arn = hidden\nrole_session_name = x\n";
    let scene = Scene::new().await.file(".aliyun/credentials.ini", text);
    scene.fails_on_oss("`role_arn`").await;
    let text = "[default]\nenable = perhaps\naccess_key_id = hidden\naccess_key_secret = hidden\n";
    let scene = Scene::new().await.file(".aliyun/credentials.ini", text);
    scene.fails_on_oss("`enable`").await;
}

#[tokio::test]
async fn a_profile_that_a_variable_names_is_not_replaced_by_one_of_another_tool() {
    let scene = Scene::new().await.with("OSS_PROFILE", "dev");
    let text = "[default]\naccess_key_id = hidden\naccess_key_secret = hidden\n";
    let scene = scene.file(".aliyun/credentials.ini", text);
    scene.fails_on_oss("profile `dev`").await;
    let scene = Scene::new().await.with("AWS_DEFAULT_PROFILE", "dev");
    let text = format!(
        "[default]\naws_access_key_id = a\naws_secret_access_key = s\n[dev]\n{KEYS_OF_AWS}"
    );
    scene
        .file(".aws/credentials", &text)
        .finds_own_on_s3()
        .await;
}

#[tokio::test]
async fn a_file_that_a_variable_names_is_not_passed_over() {
    for variable in ["AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"] {
        let scene = Scene::new().await.with(variable, "/no/such/file");
        scene.fails_on_s3("/no/such/file").await;
        let scene = Scene::new().await.with(variable, "~/elsewhere");
        let text = format!("[default]\n{KEYS_OF_AWS}");
        scene.file("elsewhere", &text).finds_own_on_s3().await;
    }
    let text = format!("[default]\n{KEYS_OF_AWS}");
    let scene = Scene::new().await.with("AWS_CONFIG_FILE", "/no/such/file");
    scene
        .file(".aws/credentials", &text)
        .finds_own_on_s3()
        .await;
    let scene = Scene::new().await;
    let scene = scene.with("ALIBABA_CLOUD_CONFIG_FILE", "/no/such/file");
    scene.fails_on_oss("/no/such/file").await;
}

#[tokio::test]
async fn a_link_that_leads_nowhere_is_not_passed_over() {
    let link = |scene: &Scene, name: &str| {
        let path = scene.path(name);
        std::fs::create_dir_all(path.parent().expect("it has one")).expect("made");
        std::os::unix::fs::symlink("/no/such/file", path).expect("made");
    };
    let scene = Scene::new().await;
    link(&scene, ".aws/credentials");
    scene.fails_on_s3(".aws/credentials").await;
    let scene = Scene::new().await;
    link(&scene, ".oss/credentials");
    scene.fails_on_oss(".oss/credentials").await;
    let scene = Scene::new().await;
    link(&scene, ".passwd-ossfs");
    scene.fails_on_oss(".passwd-ossfs").await;
}

#[tokio::test]
async fn a_mark_of_the_byte_order_does_not_hide_the_line_of_a_bucket() {
    let scene = Scene::new().await;
    let scene = scene.file(
        ".passwd-ossfs",
        "\u{feff}bucket:own:s\nother:hidden:hidden\n",
    );
    scene.finds_own_on_oss().await;
}
