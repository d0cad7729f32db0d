package conversation

import (
	"github.com/comfyhub/comfyhub/botbridge/internal/request"
)

// again returns inputs to upload again, as the hub may have forgotten them.
func again(inputs []request.Input) []request.Input {
	fresh := make([]request.Input, len(inputs))
	for i, in := range inputs {
		in.Stored = ""
		fresh[i] = in
	}
	return fresh
}
