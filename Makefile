# Pinfold's build: one GNU makefile, no recursion into directories.
#
#   make              the four programs, in build/
#   make up | down    install what is missing, build, start (stop) server and runner
#   make env          print how a shell reaches them:  eval "$(make -s env)"
#   make test         install what the tests need, build, run every test
#   make bench        the benchmark table and build/bench.json
#   make lint         formatting, sizes, names, fences
#   make escape       attempts to get out of a jail, on every back end and policy; a table by class
#   make sizes        the privileged programs: lines, bytes, and the system calls that they can make
#   make analyze      gcc -fanalyzer, clang-tidy and cppcheck over everything (minutes at first)
#   make fuzz SECONDS=60
#   make fault        every place that makes a system call or allocates fails once (an hour or more)
#   make mislabel RUNS=10000   programs whose end is known, many at once: is each told right?
#   make kills N=100   kill -9 of server and runner at so many random moments under load
#   make soak MINUTES=10   days of work at once with kill -9 in between; a table and build/soak.svg
#   make install      copy programs, policies, units and pages below DESTDIR/PREFIX
#   make deb          the Debian package, build/deb/pinfold_VERSION_ARCH.deb
#   make test-deb     install, use, upgrade and purge it in a Debian root of its own
#   make test-container  build deploy/container's image on an engine of its own and run jobs in it
#   make test-docker  the suites of jails, limits, reporting, files, sandboxes and escapes on containers
#   make test-vm      virtual machines with cgroup v2 alone: package and units; jails, limits and escapes,
#                     as root and without; containers; AppArmor. An hour of a processor, or what is
#                     chosen of it, and the rest is named: PARTS="deploy native escapes rootless
#                     rootless-escapes docker apparmor", or a share, such as escapes:1/8
#   make build-deps   install the Debian packages that building needs
#   make deps         install the Debian packages of all of the above
#   make clean
#
# Variables: CC=gcc|clang, OPT=-O2, PORT=7070, STATE=DIR, SECONDS=N, RUNS=N, N=N, MINUTES=N, and SAN=1, which builds server
# and client with AddressSanitizer and UndefinedBehaviorSanitizer into build/san/. For install:
# DESTDIR=, PREFIX=/usr/local, SYSCONFDIR=/etc. For deb: DEB_VERSION=1.2.3 instead of the programs' own.

MAKEFLAGS += --no-builtin-rules --no-builtin-variables
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.SUFFIXES:

ifneq ($(filter undefined default,$(origin CC)),)
CC := gcc
endif
CLANG := clang
AR := ar
OPT := -O2
PORT := 7070
STATE := /var/lib/pinfold
SECONDS := 60
RUNS := 10000
N := 100
MINUTES := 10
DESTDIR :=
PREFIX := /usr/local
SYSCONFDIR := /etc
DEB_VERSION :=
B := build
# Of a build that nobody gave a -j: as many at once as there are processors.
JOBS = $(if $(filter -j% --jobserver%,$(MAKEFLAGS)),,-j$(shell nproc))

# --------------------------------------------------------------------------------------------------
# Packages (Debian 12).

PACKAGES_build := gcc make pkg-config musl-tools libmicrohttpd-dev libjansson-dev libseccomp-dev libcap-dev \
    libcgroup-dev libcurl4-openssl-dev libexpat1-dev libpcre2-dev libarchive-dev libsodium-dev libsqlite3-dev libgnutls28-dev e2fsprogs
PACKAGES_test := libcmocka-dev bats python3 python3-venv clang libclang-rt-14-dev clang-format-14 \
    python3-seccomp nodejs openjdk-17-jdk-headless gcc make git perl strace procps iproute2 \
    util-linux curl gdb tmux less openssl systemd apparmor groff-base dpkg-dev docker.io busybox-static xfsprogs
PACKAGES_deb := dpkg-dev lintian
PACKAGES_testdeb := debootstrap
PACKAGES_testvm := debootstrap qemu-system-x86 e2fsprogs
PACKAGES_analyze := gcc clang-tidy-14 cppcheck python3 pkg-config
PACKAGES_escape := python3 util-linux bash
PACKAGES_docker := podman runc uidmap
PACKAGES_bench := bubblewrap git
PACKAGES_fuzz := clang libclang-rt-14-dev python3
PACKAGES_fault := python3 python3-seccomp musl-tools gcc
PACKAGES_lint := clang-format-14 python3

# --------------------------------------------------------------------------------------------------
# Directories. INC is the fence: a file may include headers of its own directory and of those named
# here, and of nothing else, because the compiler is given no other path.

DIRS := runner/base runner/wire runner/policy runner/jail runner/main runner/docker runner/init \
    server/api server/apart server/output server/files server/image server/store server/audit \
    server \
    agent-client/verify agent-client/model agent-client/permission agent-client/workspace \
    agent-client/undo agent-client/term agent-client/local agent-client/receipt agent-client/rest \
    agent-client/stream agent-client/cp agent-client/project agent-client/agent agent-client \
    tests/bench

INC_runner/base :=
INC_runner/wire := runner/base
INC_runner/policy := runner/wire runner/base
INC_runner/jail := runner/policy runner/wire runner/base
INC_runner/main := runner/jail runner/policy runner/wire runner/base
INC_runner/docker := runner/main runner/jail runner/policy runner/wire runner/base
INC_runner/init := runner/wire runner/base
INC_server/api := runner/wire runner/base
INC_server/output := server/api runner/wire runner/base
INC_server/apart := runner/base
INC_server/files := server/apart server/api runner/wire runner/base
INC_server/image := server/apart server/api runner/wire runner/base
INC_server/store := server/api runner/base
INC_server/audit := server/api runner/base
INC_server := server/output server/files server/image server/store server/audit server/apart \
    server/api runner/wire runner/base
INC_agent-client/verify := runner/base
INC_agent-client/model := runner/base
INC_agent-client/permission := runner/base
INC_agent-client/workspace := server/api runner/base
INC_agent-client/undo := server/api runner/base
INC_agent-client/term := server/api runner/wire runner/base
INC_agent-client/local := agent-client/term server/api runner/wire runner/base
INC_agent-client/receipt := agent-client/local agent-client/term server/api runner/wire runner/base
INC_agent-client/rest := agent-client/term server/api runner/wire runner/base
INC_agent-client/stream := agent-client/rest agent-client/local agent-client/term \
    server/api runner/wire runner/base
INC_agent-client/cp := agent-client/rest agent-client/local agent-client/term \
    server/api runner/wire runner/base
INC_agent-client/project := agent-client/permission agent-client/workspace agent-client/undo \
    agent-client/rest agent-client/local agent-client/term server/api runner/wire runner/base
INC_agent-client/agent := agent-client/project agent-client/verify agent-client/model \
    agent-client/receipt $(INC_agent-client/project)
INC_agent-client := agent-client/agent agent-client/cp agent-client/stream $(INC_agent-client/agent)
INC_tests/bench := agent-client/permission agent-client/undo server/api runner/base

# Libraries by pkg-config name, per directory that calls them.
PKG_runner/policy := jansson libsodium
PKG_runner/jail := libseccomp libcap libcgroup
PKG_runner/docker := libcurl jansson libsodium libarchive
PKG_server/api := jansson libsodium
PKG_server/files := libarchive libsodium
PKG_server/image := libarchive libsodium jansson libcurl libcap
PKG_server/store := sqlite3 libsodium
PKG_server/audit := libsodium jansson
PKG_server := libmicrohttpd gnutls libsodium libcap
PKG_agent-client/model := jansson libcurl
PKG_agent-client/workspace := libsodium
PKG_agent-client/undo := libsodium
PKG_agent-client/local := jansson
PKG_agent-client/receipt := jansson libsodium
PKG_agent-client/rest := libcurl jansson
PKG_agent-client/stream := jansson libsodium
PKG_agent-client/cp := libarchive
PKG_agent-client/project := jansson libsodium
PKG_agent-client/agent := jansson libsodium
PKG_agent-client/verify := jansson expat libpcre2-8 libsodium
PKG_agent-client/permission := libsodium
PKG_agent-client := jansson libsodium
PKG_tests/bench := libseccomp jansson libmicrohttpd libsodium

# Programs: the directory that holds main() and the variant that it is built as.
PROGRAMS := pinfold-server pinfold-runner pinfold-runner-docker pinfold-init pinfold
MAIN_pinfold-server := server
MAIN_pinfold-runner := runner/main
MAIN_pinfold-runner-docker := runner/docker
MAIN_pinfold-init := runner/init
MAIN_pinfold := agent-client
SAN_PROGRAMS := pinfold-server pinfold

# Unit tests (tests/unit/unit_NAME.c) and fuzz harnesses (tests/fuzz/fuzz_NAME.c) are named after
# the module NAME.c that they test. They run under the sanitizers, except for the modules of these
# directories: they make namespaces and filter system calls that a sanitizer's runtime needs.
UNIT_PLAIN_DIRS := runner/jail runner/init server/apart

# --------------------------------------------------------------------------------------------------
# Flags. Variants: rel (programs), init (process 1 of a jail), san (sanitizers), tsan (threads),
# fuzz (libFuzzer).

VARIANTS := rel init san tsan fuzz
MACHINE := $(shell uname -m)
WARN := -Wall -Wextra -Werror -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wformat=2 -Wvla \
    -Wconversion -Wsign-conversion -fno-common
HARDEN := -fstack-protector-strong -fstack-clash-protection \
    $(if $(filter x86_64,$(MACHINE)),-fcf-protection)
CFLAGS_all := -std=gnu17 -D_GNU_SOURCE $(WARN) $(HARDEN) -g -ffunction-sections -fdata-sections
LDFLAGS_all := -Wl,-z,relro,-z,now -Wl,-z,noexecstack -Wl,--gc-sections -Wl,--as-needed

CC_rel = $(CC)
CFLAGS_rel := $(OPT) -D_FORTIFY_SOURCE=2 -fPIE
LDFLAGS_rel := -pie

# Static, so that nothing of the jail's file system is loaded into process 1; small, because its
# address space is what a jail costs; and with musl, because the start of a glibc program asks the
# processor for its features, which takes 290 µs in a virtual machine: more than the namespaces. The
# kernel's headers are looked for after musl's own.
CC_init = musl-gcc
CFLAGS_init := -Os -fno-pie -idirafter /usr/include -idirafter /usr/include/$(MACHINE)-linux-gnu
LDFLAGS_init := -static -no-pie -s
# What process 1 uses of the shared directories; the rest may need more than musl has.
ONLY_init_runner/base := buf clock err fd fd_pass str
ONLY_init_runner/wire := bundle fileop spec

CC_san = $(CC)
SANITIZE := -fsanitize=address,undefined -fno-sanitize-recover=all
# There are more of these than of all others together: line numbers are enough for a report, and gold
# links them in less than half the time.
CFLAGS_san := -O1 -g1 -fno-omit-frame-pointer -fPIE $(SANITIZE)
LDFLAGS_san := -pie -fuse-ld=gold $(SANITIZE)

# What has threads, under ThreadSanitizer as well.
CC_tsan = $(CC)
CFLAGS_tsan := -O1 -fno-omit-frame-pointer -fPIE -fsanitize=thread
LDFLAGS_tsan := -pie -fsanitize=thread
UNIT_THREADS := bodies store work
# They need no more than this, which saves a good part of a build.
ONLY_tsan_server := bodies work
ONLY_tsan_server/store := results store store_checkpoint store_file store_health store_migrate store_sql
ONLY_tsan_server/api := text
ONLY_tsan_runner/wire := cause

CC_fuzz = $(CLANG)
CFLAGS_fuzz := -O1 -fno-omit-frame-pointer -fsanitize=fuzzer-no-link,address,undefined \
    -fno-sanitize-recover=all -Wno-sign-conversion
LDFLAGS_fuzz := -fsanitize=fuzzer,address,undefined

# --------------------------------------------------------------------------------------------------
# Entry points.

.PHONY: all tests fuzzers objects up down env test bench lint fuzz soak deps clean FORCE
.PHONY: fault mislabel kills install deb test-deb test-container test-vm build-deps

ifdef SAN
all: $(SAN_PROGRAMS:%=$(B)/san/%)
else
all: $(PROGRAMS:%=$(B)/%)
endif

up:
	@deploy/deps.sh $(PACKAGES_build)
	@+$(MAKE) --no-print-directory $(JOBS) all
	@deploy/up.sh --port '$(PORT)' --state '$(STATE)'

down:
	@deploy/down.sh --state '$(STATE)'

env:
	@deploy/env.sh --state '$(STATE)'

test:
	@deploy/deps.sh $(PACKAGES_build) $(PACKAGES_test)
	@+$(MAKE) --no-print-directory $(JOBS) all tests
	@PINFOLD_BUILD='$(abspath $(B))' tests/run

bench:
	@deploy/deps.sh $(PACKAGES_build) $(PACKAGES_bench)
	@+tests/bench/run

lint:
	@deploy/deps.sh $(PACKAGES_build) $(PACKAGES_lint)
	@+$(MAKE) --no-print-directory $(JOBS) objects
	@LINT_BUILD='$(B)' LINT_CFLAGS='$(CC) $(CFLAGS_all) $(CFLAGS_rel)' \
	    LINT_FENCES='$(foreach d,$(DIRS),$(d)=$(subst $(space),$(comma),$(strip $(INC_$(d)))))' \
	    tests/lint

.PHONY: escape sizes analyze test-docker
sizes:
	@+$(MAKE) --no-print-directory $(JOBS) all >/dev/null
	@tests/sizes '$(B)'

analyze:
	@deploy/deps.sh $(PACKAGES_build) $(PACKAGES_analyze)
	@ANALYZE_BUILD='$(B)' ANALYZE_CFLAGS='-std=gnu17 -D_GNU_SOURCE $(OPT) -D_FORTIFY_SOURCE=2' \
	    ANALYZE_FENCES='$(foreach d,$(DIRS),$(d)=$(subst $(space),$(comma),$(strip $(INC_$(d)))))' \
	    ANALYZE_PACKAGES='$(foreach d,$(DIRS),$(d)=$(subst $(space),$(comma),$(call packages_of,$(d))))' \
	    tests/analyze

test-docker:
	@deploy/deps.sh $(PACKAGES_build) $(PACKAGES_test) $(PACKAGES_docker)
	@+$(MAKE) --no-print-directory $(JOBS) all $(B)/tests/escape
	@PINFOLD_BUILD='$(abspath $(B))' tests/docker/run

escape:
	@deploy/deps.sh $(PACKAGES_build) $(PACKAGES_escape)
	@+$(MAKE) --no-print-directory $(JOBS) all $(B)/tests/escape
	@PINFOLD_BUILD='$(abspath $(B))' tests/escape/run.py

fuzz:
	@deploy/deps.sh $(PACKAGES_build) $(PACKAGES_fuzz)
	@+$(MAKE) --no-print-directory $(JOBS) fuzzers
	@PINFOLD_BUILD='$(abspath $(B))' tests/fuzz/run '$(SECONDS)'

fault:
	@deploy/deps.sh $(PACKAGES_build) $(PACKAGES_fault)
	@+$(MAKE) --no-print-directory $(JOBS) all
	@PINFOLD_BUILD='$(abspath $(B))' tests/fault/run

mislabel:
	@deploy/deps.sh $(PACKAGES_build) $(PACKAGES_fault)
	@+$(MAKE) --no-print-directory $(JOBS) all
	@PINFOLD_BUILD='$(abspath $(B))' tests/fault/mislabel '$(RUNS)'

kills:
	@deploy/deps.sh $(PACKAGES_build) $(PACKAGES_test)
	@+$(MAKE) --no-print-directory $(JOBS) all
	@PINFOLD_BUILD='$(abspath $(B))' PINFOLD_TEST_KILLS='$(N)' PINFOLD_TEST_SEED="$$RANDOM" \
	    /usr/bin/python3 tests/http/run.py --only '^kills' | sed -u 's/^# \([0-9]* passed\)/\1/'

soak:
	@deploy/deps.sh $(PACKAGES_build) $(PACKAGES_test)
	@+$(MAKE) --no-print-directory $(JOBS) all
	@PINFOLD_BUILD='$(abspath $(B))' tests/soak/run '$(MINUTES)'

install: all
	@DESTDIR='$(DESTDIR)' PREFIX='$(PREFIX)' SYSCONFDIR='$(SYSCONFDIR)' deploy/install.sh '$(B)'

deb:
	@deploy/deps.sh $(PACKAGES_build) $(PACKAGES_deb)
	@+$(MAKE) --no-print-directory $(JOBS) all
	@deb=$$(deploy/deb.sh '$(B)' '$(DEB_VERSION)') && echo "$$deb" && \
	    lintian --allow-root --fail-on error "$$deb"

test-deb:
	@deploy/deps.sh $(PACKAGES_build) $(PACKAGES_deb) $(PACKAGES_testdeb)
	@+$(MAKE) --no-print-directory $(JOBS) all
	@tests/deploy/deb '$(B)'

test-container:
	@deploy/deps.sh $(PACKAGES_build) $(PACKAGES_testdeb) $(PACKAGES_docker) docker.io curl
	@+$(MAKE) --no-print-directory $(JOBS) all
	@tests/deploy/container '$(B)'

test-vm:
	@deploy/deps.sh $(PACKAGES_build) $(PACKAGES_deb) $(PACKAGES_testvm)
	@+$(MAKE) --no-print-directory $(JOBS) all $(B)/tests/escape
	@tests/deploy/vm '$(B)' $(PARTS)

build-deps:
	@deploy/deps.sh $(PACKAGES_build)

deps:
	@deploy/deps.sh $(PACKAGES_build) $(PACKAGES_test) $(PACKAGES_bench)

clean:
	rm -rf $(B)

# --------------------------------------------------------------------------------------------------
# Objects and archives: build/VARIANT/obj/DIR/NAME.o and build/VARIANT/lib/DIR.a. An archive gives a
# program only what it uses.

empty :=
space := $(empty) $(empty)
comma := ,

# Asked once, and only when something is compiled: a fresh machine has no pkg-config yet.
pkg = $(if $(filter undefined,$(origin PKG_$(2)_$(1))),$(eval PKG_$(2)_$(1) := \
    $(shell pkg-config --$(2) $(1))))$(PKG_$(2)_$(1))
include_of = $(1) $(INC_$(1))
packages_of = $(sort $(foreach d,$(call include_of,$(1)),$(PKG_$(d))))
archives_of = $(foreach d,$(call include_of,$(2)),$(B)/$(1)/lib/$(d).a)
sources_of = $(if $(ONLY_$(1)_$(2)),$(ONLY_$(1)_$(2):%=$(2)/%.c),$(wildcard $(2)/*.c))
objects_of = $(patsubst %.c,$(B)/$(1)/obj/%.o,$(call sources_of,$(1),$(2)))
compile_of = $(CC_$(1)) $(CFLAGS_all) $(CFLAGS_$(1))
libs_of = $(foreach p,$(call packages_of,$(1)),$(call pkg,$(p),libs)) -pthread
link = $(CC_$(1)) $(CFLAGS_$(1)) $(LDFLAGS_all) $(LDFLAGS_$(1)) -o $@ \
    $(filter %.o,$^) -Wl,--start-group $(filter %.a,$^) -Wl,--end-group

# Rebuilds a variant when its command changes.
$(foreach v,$(VARIANTS),$(B)/$(v)/flags): $(B)/%/flags: FORCE
	@mkdir -p $(@D)
	@echo '$(call compile_of,$*)' | cmp -s - $@ || echo '$(call compile_of,$*)' > $@

define directory_rules # variant, directory
$(B)/$(1)/obj/$(2)/%.o: $(2)/%.c $(B)/$(1)/flags
	@mkdir -p $$(@D)
	@echo "  CC   $(1)  $$<"
	@$(call compile_of,$(1)) $(addprefix -I,$(call include_of,$(2))) \
	    $$(foreach p,$(call packages_of,$(2)),$$(call pkg,$$(p),cflags)) -MMD -MP -c $$< -o $$@

# The directory itself: its time changes when a source is added or removed.
$(B)/$(1)/lib/$(2).a: $(call objects_of,$(1),$(2)) $(2)
	@mkdir -p $$(@D)
	@rm -f $$@
	@$(AR) rcs $$@ $$(filter %.o,$$^)
endef

$(foreach v,$(VARIANTS),$(foreach d,$(DIRS),$(eval $(call directory_rules,$(v),$(d)))))

# It holds the document byte for byte.
$(VARIANTS:%=$(B)/%/obj/server/openapi.o): server/openapi.json

# What the linter looks into: every object as it is in its program.
objects: $(foreach d,$(DIRS),$(call objects_of,$(if $(filter runner/init,$(d)),init,rel),$(d)))

define program_rules # variant, path, directory with main()
$(2): $(call archives_of,$(1),$(3))
	@mkdir -p $$(@D)
	@echo "  LD   $(1)  $$@"
	@$$(call link,$(1)) $(if $(filter init,$(1)),,$$(call libs_of,$(3)))
	$(if $(filter init,$(1)),@! readelf --program-headers --wide $$@ | grep -q INTERP || \
	    { echo '$(2) is not static'; exit 1; })
endef

$(foreach p,$(filter-out pinfold-init,$(PROGRAMS)), \
    $(eval $(call program_rules,rel,$(B)/$(p),$(MAIN_$(p)))))
$(foreach p,$(SAN_PROGRAMS),$(eval $(call program_rules,san,$(B)/san/$(p),$(MAIN_$(p)))))
$(eval $(call program_rules,init,$(B)/pinfold-init,$(MAIN_pinfold-init)))
$(eval $(call program_rules,rel,$(B)/bench,tests/bench))

# --------------------------------------------------------------------------------------------------
# Tests: build/tests/unit-NAME, build/tests/replay-NAME (a harness over its corpus) and
# build/fuzz/NAME (libFuzzer). A test of a module that is not there has no rule; tests/run says so.

module_dir = $(firstword $(foreach d,$(DIRS),$(if $(wildcard $(d)/$(1).c),$(d))))
modules_of = $(foreach m,$(patsubst tests/$(1)/$(2)_%.c,%,$(wildcard tests/$(1)/$(2)_*.c)), \
    $(if $(call module_dir,$(m)),$(m)))
UNITS := $(call modules_of,unit,unit)
FUZZERS := $(call modules_of,fuzz,fuzz)

define test_rules # variant, source without .c, program, directory of the module, more objects
$(B)/$(1)/obj/$(2).o: $(2).c $(B)/$(1)/flags
	@mkdir -p $$(@D)
	@echo "  CC   $(1)  $$<"
	@$(call compile_of,$(1)) $(addprefix -I,$(call include_of,$(4)) $(sort $(dir $(2)) tests/unit/)) \
	    $$(foreach p,$(call packages_of,$(4)),$$(call pkg,$$(p),cflags)) -MMD -MP -c $$< -o $$@

$(3): $(B)/$(1)/obj/$(2).o $(5) $(call archives_of,$(1),$(4))
	@mkdir -p $$(@D)
	@echo "  LD   $(1)  $$@"
	@$$(call link,$(1)) $$(call libs_of,$(4)) $(if $(findstring /unit/,$(2)),-lcmocka)
endef

unit_variant = $(if $(filter $(UNIT_PLAIN_DIRS),$(call module_dir,$(1))),rel,san)
unit_rules = $(call test_rules,$(call unit_variant,$(1)),tests/unit/unit_$(1),$(strip \
    )$(B)/tests/unit-$(1),$(call module_dir,$(1)))
tsan_rules = $(call test_rules,tsan,tests/unit/unit_$(1),$(B)/tests/tsan-$(1),$(strip \
    )$(call module_dir,$(1)))
replay_rules = $(call test_rules,san,tests/fuzz/fuzz_$(1),$(B)/tests/replay-$(1),$(strip \
    )$(call module_dir,$(1)),$(B)/san/obj/tests/fuzz/replay.o)
fuzz_rules = $(call test_rules,fuzz,tests/fuzz/fuzz_$(1),$(B)/fuzz/$(1),$(call module_dir,$(1)))
$(foreach m,$(UNITS),$(eval $(call unit_rules,$(m))))
$(foreach m,$(UNIT_THREADS),$(eval $(call tsan_rules,$(m))))
$(foreach m,$(FUZZERS),$(eval $(call replay_rules,$(m)))$(eval $(call fuzz_rules,$(m))))

$(B)/san/obj/tests/fuzz/replay.o: tests/fuzz/replay.c $(B)/san/flags
	@mkdir -p $(@D)
	@$(call compile_of,san) -MMD -MP -c $< -o $@

# Writes the first inputs of the codec harnesses; not part of a test run.
$(eval $(call test_rules,rel,tests/fuzz/seeds,$(B)/tests/seeds,runner/wire))

# The attempts in C, and those that tests/http makes, as one static program that runs in any image.
ESCAPE_SOURCES := $(wildcard tests/escape/*.c)
ESCAPE_CC = $(CC_init) -std=gnu17 -D_GNU_SOURCE $(WARN) $(CFLAGS_init) -Itests/escape
ESCAPE_OBJECTS := $(ESCAPE_SOURCES:%.c=$(B)/init/obj/%.o) $(B)/init/obj/tests/escape/probes.o

$(B)/init/obj/tests/escape/%.o: tests/escape/%.c tests/escape/attempt.h $(B)/init/flags
	@mkdir -p $(@D)
	@echo "  CC   init  $<"
	@$(ESCAPE_CC) -c $< -o $@

$(B)/init/obj/tests/escape/probes.o: tests/escape/probes.py tests/http/escape.py tests/escape/attempt.h
	@mkdir -p $(@D)
	@/usr/bin/python3 tests/escape/probes.py $(@:.o=.c)
	@$(ESCAPE_CC) -w -c $(@:.o=.c) -o $@

$(B)/tests/escape: $(ESCAPE_OBJECTS)
	@mkdir -p $(@D)
	@echo "  LD   init  $@"
	@$(CC_init) -static -no-pie -s -o $@ $^ -pthread

tests: $(B)/tests/escape
tests: $(UNITS:%=$(B)/tests/unit-%) $(FUZZERS:%=$(B)/tests/replay-%)
tests: $(SAN_PROGRAMS:%=$(B)/san/%) $(UNIT_THREADS:%=$(B)/tests/tsan-%)
fuzzers: $(FUZZERS:%=$(B)/fuzz/%)

-include $(shell [ ! -d $(B) ] || find $(B) -path $(B)/deb -prune -o -type f -name '*.d' -print)
