"""The other side of the coin: what the attempts do where nothing confines them. As root, in
namespaces of its own, each of these must succeed; where one does not, its refusal in a jail says
nothing about the jail."""

import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "http"))

from client import nonce

UNCONFINED = ["unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--mount-proc", "--net", "--ipc",
              "--uts", "--cgroup"]

# Only what touches nothing but the namespaces above and the process itself.
HARMLESS = """
clone_CLONE_NEWNS clone_CLONE_NEWNET clone_CLONE_NEWIPC clone_CLONE_NEWUTS clone_CLONE_NEWCGROUP
unshare_CLONE_NEWIPC unshare_CLONE_NEWUTS unshare_CLONE_NEWTIME clone_user_in_vfork join_mnt join_pid join_net
join_ipc join_uts join_own_cgroup mount_sysfs mount_mqueue mount_devpts mount_self_root chroot_out
chroot_proc open_tree_path mount_setattr_recursive open_dev_console keyctl_user name_to_handle
fanotify_plain bpf_prog_load unix_diag protocol_raw_ip protocol_raw_tcp protocol_netlink_netfilter
protocol_netlink_generic protocol_netlink_uevent protocol_netlink_diag option_mark option_force_buffer
interface_promiscuous interface_address become_root_real become_host_user fsuid keep_caps read_maps read_auxv
read_io robust_list affinity reopen_read fdinfo probe_unshare_ns probe_unshare_net probe_unshare_pid
probe_clone_pid probe_mount_tmpfs probe_mount_proc probe_mount_bind probe_fsopen probe_fspick probe_open_tree
probe_chroot probe_keyctl_join probe_add_key probe_sethostname probe_setdomainname probe_setgroups probe_setgid
probe_raw_icmp probe_packet probe_setresuid probe_ptrace_seize probe_init_root probe_init_cwd probe_init_environ
probe_mem_write probe_prlimit_init probe_sched_init forged_credentials discipline discipline_high modify_ldt
""".split()


def outcome(binary, name):
    number = nonce()
    done = subprocess.run(UNCONFINED + [os.path.abspath(binary), number, name], stdin=subprocess.DEVNULL, capture_output=True,
                          timeout=20, cwd="/")
    for line in done.stdout.decode("utf-8", "replace").splitlines():
        word = line.split(" ", 3)
        if word[:2] == [number, "RESULT"]:
            return word[3].rpartition(" ")[0]
    return "nothing"


def problems(binary):
    """-> (those that do not succeed here, how many were tried)"""
    found = []
    for name in HARMLESS:
        seen = outcome(binary, name)
        if seen != "OK":
            found.append("%s: %s" % (name, seen))
    return found, len(HARMLESS)
