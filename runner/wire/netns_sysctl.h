/* What is set in the network namespace of each jail, below /proc/sys, as far as the kernel has it
 * for each namespace: sent packets do not come back with their time stamp as messages that nobody
 * reads, little is kept with a socket, few connections wait to be accepted, what arrives on them
 * meanwhile is little (the buffer of one that is read grows as always), and few that are over wait
 * for a minute (the others are gone at once). No memory cgroup counts any of it.
 *
 * Rows of {path, value}. `at` is a string that every path begins with. */
#pragma once

#define NETNS_SYSCTL(at)                                                                           \
    {at "net/core/tstamp_allow_data", "0"}, {at "net/core/optmem_max", "20480"},                   \
        {at "net/core/somaxconn", "128"}, {at "net/ipv4/tcp_max_tw_buckets", "4096"}, {            \
        at "net/ipv4/tcp_rmem", "4096 32768 6291456"                                               \
    }
