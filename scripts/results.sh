# Sourced by test.sh and test-target.sh: reads what cargo and the tests printed, and which tests said that they
# were skipped.
# shellcheck shell=bash

# How long a test target may take.
target_patience=${TARGET_PATIENCE:-20m}

# target_name PROGRAM: the name of a target, from that of its program.
target_name() { basename "$1" | sed -E 's/-[0-9a-f]+$//'; }

# was_too_late STATUS: whether `timeout` ended what it ran, by TERM or by KILL.
was_too_late() { (($1 == 124 || $1 == 137)); }

# failed_tests LOG: the names of the tests that failed, one a line.
failed_tests() { sed -nE 's/^test (.+) \.\.\. FAILED$/\1/p' "$1" | sort -u; }

# test_targets ARTIFACTS: the directory and the program, with a tab between them, of each test target among
# what cargo says that it built, one a line; those that mount come first, for they take longest.
test_targets() {
  sed -nE 's/.*"manifest_path":"([^"]+)\/Cargo.toml".*"profile":\{[^}]*"test":true\}.*"executable":"([^"]+)".*/\1\t\2/p' "$1" |
    sort --reverse
}

# built_program ARTIFACTS NAME: the program among what cargo says that it built.
built_program() {
  sed -nE 's/.*"kind":\["bin"\].*"name":"'"$2"'".*"test":false\}.*"executable":"([^"]+)".*/\1/p' "$1"
}

# test_queue NAME: of the targets that it reads, those of a queue. `alone`: they look at all processes, and one
# that is started while the files of another target's test wait for their store is held up in the middle of it,
# with everybody who looks at it. `volumes`, one after the other: each start of a stream volume
# cleans up after the volumes that others have killed. `any`: the rest.
test_queue() {
  local target name queue
  while IFS= read -r target; do
    name=${target##*/}
    case ${name%-*} in
      bench) queue=alone ;;
      stream | stream_* | bad_input | succession) queue=volumes ;;
      *) queue=any ;;
    esac
    [[ $queue != "$1" ]] || printf '%s\n' "$target"
  done
}

# print_result LOG REGISTER: names what failed and what was skipped, repeats what each failed test said, for who sees
# the end of a long log alone, without backtraces and 40 lines at most; the last line counts. The harness
# calls a test passed that was skipped and put a line into the register; one that begins with `check:`
# is of no test. A target that began and told no result has failed. So has print_result, where anything has.
print_result() {
  failed_tests "$1" | sed 's/^/failed: /'
  awk -F ': ' '
    function target(line) { sub(/\)$/, "", line); sub(/.*\//, "", line); sub(/-[0-9a-f]+$/, "", line); return line }
    function close_target() { if (is_open) { failed++; print "failed: " now ": it told no result" } }
    FILENAME == ARGV[1] {
      if (/^ *(Running|Doc-tests) /) { close_target(); is_open = 1; now = target($0) }
      if (/^test .* \.\.\. FAILED$/) { sub(/^test /, ""); sub(/ \.\.\. FAILED$/, ""); fails[now "::" $0] }
      if (/^test .* \.\.\. ignored/) { sub(/^test /, ""); sub(/ \.\.\. ignored/, ": ignored"); print "skipped: " now "::" $0 }
      if (/^---- .* stdout ----$/) { said[++failures] = "\n"; lines = 0; is_said = 1 }
      if (/^failures:$/) { is_said = 0 }
      if (is_said && !/^ +([0-9]+:|at) / && lines++ < 40) { said[failures] = said[failures] $0 "\n" }
      if (/^test result:/) { is_open = 0; split($0, word, " "); passed += word[4]; failed += word[6]; skipped += word[8] }
      next
    }
    $1 in fails || seen[$1 == "check" ? $0 : $1]++ { next }
    { skipped++; if ($1 != "check") passed--; print "skipped: " $0 }
    END {
      close_target()
      for (failure = 1; failure <= failures; failure++) { printf "%s", said[failure] }
      printf "%d passed, %d failed, %d skipped\n", passed, failed, skipped
      exit (failed > 0)
    }' "$1" "$2"
}
