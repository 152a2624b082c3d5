# Shortcuts. Each calls a plain script or cargo command, so just itself is optional.

# build sheafd and start it on ./data
run *FLAGS:
    ./run {{FLAGS}}

# run every test, or the named suites
test *SUITES:
    ./test {{SUITES}}

# compiler, linter and formatter
check:
    cargo clippy --workspace --all-targets --locked
    cargo fmt --check

# build with the oldest supported compiler (rustup toolchain install 1.90)
msrv:
    cargo +1.90 check --workspace --all-targets --locked

# licences, advisories and bans (cargo install cargo-deny)
deny:
    cargo deny check

# detect undefined behaviour and data races; needs a nightly toolchain
unsafe *PARTS:
    tests/unsafe {{PARTS}}

# rewrite the answers of golden tests: all, of a crate, of a test, or of files; review the diff
bless *WHAT:
    tests/bless {{WHAT}}

# load and query 10,000 and 1,000,000 orders
orders *SIZES:
    tests/clients/go/orders/measure {{SIZES}}
