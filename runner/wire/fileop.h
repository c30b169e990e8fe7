/* File operations: how the server reads and writes files of a sandbox.
 *
 * An operation is an EXEC of kind WIRE_EXEC_FILES. It is served by a process that process 1 of the
 * jail forks, inside the jail, with the rights of the jail's user and nothing more: every path
 * means what it means to the programs there, whatever links they made, and no privileged process
 * looks at one. Until its end it keeps ids that nothing in the jail may signal, trace or see.
 *
 * The spec's argv is the operation and its arguments, all text; numbers are decimal, yes and no are
 * 1 and 0. Streams of records go in (its stdin) and come out (its stdout). Every answer ends with
 * one END record, or one ERROR record with an empty path, which says why the operation as a whole
 * failed. A stream without either was cut short: whatever was to be changed all at once was not
 * changed. The exit code is 0 when the answer was written.
 *
 * An ERROR record with a path is about that file alone: list, pack, scan, upper, look and fetch go
 * on behind it. It takes back an ENTRY of the same path just before it, whose contents may have
 * ended early. Unpack and apply tell it of the record that failed, just before the last ERROR.
 *
 *   stat PATH FOLLOW
 *       -> ENTRY
 *   read PATH OFFSET LENGTH
 *       -> ENTRY, then DATA records, the last one empty; regular files only. LENGTH beyond the end
 *       is cut. ENTRY.size is the size of the file
 *   write PATH MODE MAKE_PARENTS
 *       <- DATA records, END. -> ENTRY of the new file. A temporary file beside it takes its name
 *       when END has come. MODE -1: that of the file before, else 0644. A final symbolic link is
 *       followed. The ENTRY has FILEOP_CREATED when there was no file before
 *   list PATH DEPTH LIMIT AFTER
 *       -> ENTRY records below PATH (paths relative to it), depth first, in the order of the bytes
 *       of names; at most LIMIT, after AFTER ("" = from the start). END.flags & FILEOP_MORE: there
 *       are more
 *   mkdir PATH MODE MAKE_PARENTS
 *       -> ENTRY; there already: FILEOP_EXISTS, unless it is a directory and MAKE_PARENTS. MODE -1:
 *       0755
 *   move FROM TO REPLACE
 *       -> ENTRY of TO
 *   remove PATH RECURSIVE
 *       -> END; the link itself, never what it leads to
 *   pack PATH
 *       -> ENTRY records of PATH ("" = itself) and all below, parents first, in the order of list,
 *       regular files with their contents. FILEOP_TOO_LARGE before anything else when the sizes
 *       add up to more than FILEOP_PACK_MAX
 *   unpack PATH
 *       <- ENTRY records with contents, END: made as they come; a file that is in the way is
 *       replaced, a directory only when it is empty. -> END. Nothing is written through a link, nor
 *       outside of PATH, which is made when it is not there. Sockets and devices are
 *       FILEOP_UNSUPPORTED, one by one
 *   watch PATH RECURSIVE
 *       -> ENTRY of PATH once it is watched, then EVENT records, until its stdin ends; then END.
 *       When PATH leads to another directory, as after a snapshot, that one is watched within a
 *       second or two, behind a FILEOP_OVERFLOW; when it is gone: FILEOP_NOT_FOUND. Restores end it
 *   scan PATH
 *       -> ENTRY records of all below, parents first, without contents
 *   upper PATH
 *       -> as scan, of what was written since the last snapshot, with FILEOP_WHITEOUT where
 *       something was removed; FILEOP_UNSUPPORTED where there is no snapshot yet. A directory with
 *       FILEOP_OPAQUE is told whole: whatever was in it before and is not told now is gone. A
 *       directory without it that is new may have been moved there with all that is in it: scan it
 *   look PATH
 *       <- NAME records, END. -> for each, in order, ENTRY or ERROR. No link is followed
 *   fetch PATH
 *       <- NAME records, END. -> for each, in order, ENTRY with contents or ERROR. No link is
 *       followed
 *   apply PATH
 *       <- ENTRY records with contents and REMOVE records, END. -> ENTRY of each that was made, in
 *       order. All of it or nothing: it is made in a directory beside, and takes its places at END,
 *       in the order of the records. What is in the way goes, whatever it is; a removed directory
 *       goes with all that is in it; what is to be removed and isn't there is no error. PATH and
 *       missing parents are made. A FILE without FILEOP_CONTENT keeps its contents and gets mode
 *       and mtime; FILEOP_CHANGED when there is no such file
 *
 * Paths of records are relative to PATH and pass bundle_path_ok(); "" is PATH itself, in answers
 * only. Names that begin with FILEOP_HIDDEN are those of work in progress: no walk tells them,
 * unpack and apply do not make them, and scan and apply remove those that a killed process left.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "err.h"

#define FILEOP_MAGIC 0x314f4650u /* "PFO1" */
#define FILEOP_PATH_MAX 4095u
#define FILEOP_TARGET_MAX 4095u
#define FILEOP_DATA_MAX (1u << 20) /* bytes of one DATA record */
#define FILEOP_PACK_MAX (16ull << 30)
#define FILEOP_HIDDEN ".pinfold-work-"
#define FILEOP_MTIME_NONE INT64_MIN /* unpack, apply: the time of its making */

enum fileop_type {
    FILEOP_ENTRY = 1, /* a file; with FILEOP_CONTENT, DATA records follow, the last one empty */
    FILEOP_DATA,
    FILEOP_NAME,
    FILEOP_REMOVE,
    FILEOP_EVENT,
    FILEOP_ERROR,
    FILEOP_END,
};

enum fileop_kind {
    FILEOP_NONE = 0,
    FILEOP_FILE,
    FILEOP_DIRECTORY,
    FILEOP_SYMLINK,
    FILEOP_HARDLINK, /* pack, unpack: another name of the earlier entry `target` */
    FILEOP_FIFO,
    FILEOP_SOCKET,
    FILEOP_DEVICE,
    FILEOP_WHITEOUT,
    FILEOP_KINDS
};

enum fileop_flag {
    FILEOP_CONTENT = 1, /* ENTRY: contents follow */
    FILEOP_MORE = 2,    /* END of list */
    /* EVENT, and the first of them ENTRY of write, too: */
    FILEOP_CREATED = 4,
    FILEOP_MODIFIED = 8,
    FILEOP_DELETED = 16,
    FILEOP_ATTRIBUTES = 32,
    FILEOP_OVERFLOW = 64, /* events were lost */
    FILEOP_OPAQUE = 128,  /* ENTRY of upper: a directory that is told whole */
    FILEOP_FLAGS = 255,
};

enum fileop_code {
    FILEOP_OK = 0,
    FILEOP_NOT_FOUND,
    FILEOP_DENIED,        /* the jail's user may not, or it is read-only */
    FILEOP_NOT_DIRECTORY, /* a component is something else */
    FILEOP_IS_DIRECTORY,
    FILEOP_NOT_REGULAR, /* a FIFO, socket or device, or of /proc */
    FILEOP_EXISTS,
    FILEOP_NOT_EMPTY,
    FILEOP_LOOP, /* too many symbolic links, or a link where none may be */
    FILEOP_NAME_TOO_LONG,
    FILEOP_NO_SPACE, /* bytes or inodes of the jail are used up */
    FILEOP_TOO_LARGE,
    FILEOP_CHANGED, /* it changed while it was read */
    FILEOP_CROSS_DEVICE,
    FILEOP_INVALID, /* arguments or records that do not make sense */
    FILEOP_UNSUPPORTED,
    FILEOP_BUSY,
    FILEOP_IO, /* anything else: `sys` says */
    FILEOP_CODES
};

/* Then path_len bytes of path, target_len bytes of target (of a symbolic or hard link), and
 * data_len bytes (DATA only). */
struct fileop_record {
    uint32_t magic;
    uint32_t type;
    uint32_t kind;  /* ENTRY, EVENT (FILEOP_NONE = not known) */
    uint32_t flags; /* mask of enum fileop_flag */
    uint32_t mode;  /* 0 … 07777 */
    uint32_t nlink;
    uint64_t size;
    uint64_t inode;
    int64_t mtime_ns; /* since the epoch */
    int64_t ctime_ns;
    uint32_t code; /* ERROR: enum fileop_code */
    int32_t sys;   /* ERROR: errno */
    uint32_t path_len;
    uint32_t target_len;
    uint32_t data_len;
    uint32_t reserved;
};

/* "not_found", "denied", …; NULL out of range. */
const char *fileop_code_name(uint32_t code);
/* "file", "directory", "symlink", …; NULL out of range or FILEOP_NONE. */
const char *fileop_kind_name(uint32_t kind);
/* What an errno means here. */
enum fileop_code fileop_code_of_errno(int code);

/* 0 when the fields of a record are within bounds and fit its type. Does not look at the path. */
int fileop_check(const struct fileop_record *rec, struct err *err);

/* Reads the record at the front of a stream of which `len` bytes are there: its fields, its path
 * and its target (pointers into the bytes, not NUL-terminated). Returns 1 when they are whole and
 * good, 0 when more bytes are needed, -1 ERR_PROTOCOL. They take fileop_size() bytes; rec->data_len
 * bytes of data follow, and have not been looked for. */
int fileop_take(const char *bytes, size_t len, struct fileop_record *rec, const char **path,
                const char **target, struct err *err);
/* Bytes of the record, its path and its target, without data. */
size_t fileop_size(const struct fileop_record *rec);
