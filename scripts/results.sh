# Sourced by test.sh: reads what `cargo test` printed and which tests said that they were skipped.
# shellcheck shell=bash

# failed_tests LOG: the names of the tests that failed, one a line.
failed_tests() { sed -nE 's/^test (.+) \.\.\. FAILED$/\1/p' "$1" | sort -u; }

# failed_targets LOG: the arguments that lead cargo to each target that failed, one a line.
failed_targets() { sed -nE 's/^    `(-p .*)`$/\1/p' "$1"; }

# print_result LOG REGISTER: names what failed and what was skipped; the last line counts. The harness
# calls a skipped test passed; a line of the register that begins with `check:` is of no test. A target
# that began and told no result has failed.
print_result() {
  failed_tests "$1" | sed 's/^/failed: /'
  awk -F ': ' '
    FILENAME == ARGV[1] {
      if (/^test .* \.\.\. FAILED$/) { sub(/^test /, ""); sub(/ \.\.\. FAILED$/, ""); fails[$0] }
      if (/^ *(Running|Doc-tests) /) begun++
      if (/^test result:/) { ended++; split($0, word, " "); passed += word[4]; failed += word[6] }
      next
    }
    { test = $1; sub(/^[^:]*::/, "", test) }
    test in fails || seen[$1 == "check" ? $0 : $1]++ { next }
    { skipped++; if ($1 != "check") passed--; print "skipped: " $0 }
    END {
      if (begun > ended) failed += begun - ended
      printf "%d passed, %d failed, %d skipped\n", passed, failed, skipped
    }' "$1" "$2"
}
