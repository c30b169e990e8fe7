/* What ends when a token, or its user, is taken back or has expired.
 *
 *   open streams, waiting requests, uploads   break off, whatever the reason
 *   runs that wait in the queue               are cancelled, unless the token only expired
 *   runs and executions that go on            are cancelled when whoever took it back said so
 *   sandboxes and snapshots                   stay, unless their user was deleted */
#pragma once

/* Looks at all of them; `server` is the struct server. Cheap when nothing is to be ended. */
void revoke_now(void *server);
