# The few commands we type. Plain scripts stand behind them, so just is optional.

# builds sheafd and starts it on ./data
run *FLAGS:
    ./run {{FLAGS}}

# every test, or the named suites
test *SUITES:
    ./test {{SUITES}}

# what the compiler, the linter and the formatter say
check:
    cargo clippy --workspace --all-targets --locked
    cargo fmt --check

# looks for undefined behaviour and data races; needs a nightly toolchain
unsafe *PARTS:
    tests/unsafe {{PARTS}}

# rewrites the answers of golden tests; the diff is what we review
bless:
    UPDATE_EXPECT=1 cargo test --workspace --locked

# the order book at 10,000 and 1,000,000 orders
orders *SIZES:
    tests/clients/go/orders/measure {{SIZES}}
