package catalog_test

import "github.com/comfyhub/comfyhub/internal/pyjson"

func marshal(v pyjson.Value) string { return string(pyjson.Marshal(v)) }
