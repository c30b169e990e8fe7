/* Told to cppcheck, which reads no system header: what the loops over JSON are. */
#pragma once

#define json_array_foreach(array, i, value)                                                        \
    for (i = 0; i < json_array_size(array) && (value = json_array_get(array, i)) != 0; i++)
#define json_object_foreach(object, key, value)                                                    \
    for (key = json_object_iter_key(json_object_iter(object));                                     \
         key != 0 && (value = json_object_get(object, key)) != 0; key = next(object, key))
