#include "ask.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

#include "say.h"

bool ask_possible(void) {
    int fd = open("/dev/tty", O_RDWR | O_CLOEXEC | O_NOCTTY);
    if (fd < 0)
        return false;
    close(fd);
    return true;
}

char ask_person(const char *question, const char *choices) {
    char answer[32] = "";
    FILE *tty = fopen("/dev/tty", "r+e");
    if (tty == NULL)
        return 'n';
    /* A key that was meant for something else is no consent; one that comes after the question is.
     */
    tcflush(fileno(tty), TCIFLUSH);
    say_put(tty, question);
    fputs(" [", tty);
    for (const char *c = choices; *c != '\0'; c++)
        fprintf(tty, "%s%c", c > choices ? "/" : "", *c);
    fputs("] ", tty);
    fflush(tty);
    if (fgets(answer, sizeof(answer), tty) == NULL)
        answer[0] = '\0';
    fclose(tty);
    char letter = answer[0] >= 'A' && answer[0] <= 'Z' ? (char)(answer[0] - 'A' + 'a') : answer[0];
    return letter != '\0' && strchr(choices, letter) != NULL ? letter : 'n';
}
