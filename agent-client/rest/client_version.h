#pragma once

#define CLIENT_VERSION "0.1.0"
