# The two commands of the README, and a few for those who work on megamoe. Everything is built in build/<preset>.

.PHONY: demo test setup lint clean

# Shows the main job: one layer over four rank processes, checked against the reference; then one from a real checkpoint.
demo: setup
	@cmake --preset release -DMEGAMOE_BENCH=OFF >build-demo.log 2>&1 || { cat build-demo.log; exit 1; }
	@echo "megamoe: building (a minute or two the first time)"
	@cmake --build --preset release --target megamoe_cli >>build-demo.log 2>&1 || { cat build-demo.log; exit 1; }
	@rm -f build-demo.log
	@tools/demo build/release/cli/megamoe

# All tests: optimised, then the engine and the memory that ranks share under ThreadSanitizer.
test: setup
	@tools/setup-python
	@tools/run-tests

setup:
	@tools/setup

lint:
	@tools/lint

clean:
	rm -rf build
