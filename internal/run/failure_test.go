package run

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Only errors that torch raises for the driver are taken as the instance's fault.
func TestFailuresOfInstances(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][2]bool{ // out of memory, poisons
		`{"exception_type": "torch.OutOfMemoryError", "exception_message": "Allocation on device "}`:                               {true, false},
		`{"exception_type": "torch.cuda.OutOfMemoryError", "exception_message": "CUDA out of memory. Tried to allocate 2 GiB"}`:    {true, false},
		`{"exception_type": "torch.AcceleratorError", "exception_message": "CUDA error: out of memory\nCUDA kernel errors"}`:       {true, false},
		`{"exception_type": "RuntimeError", "exception_message": "MPS backend out of memory (MPS allocated: 9 GB)"}`:               {true, false},
		`{"exception_type": "RuntimeError", "exception_message": "CUDA error: device-side assert triggered\nCUDA kernel"}`:         {false, true},
		`{"exception_type": "torch.AcceleratorError", "exception_message": "HIP error: an illegal memory access was encountered"}`: {false, true},
		`{"exception_type": "RuntimeError", "exception_message": "CUDA error: no kernel image is available"}`:                      {false, false},
		`{"exception_type": "ValueError", "exception_message": "CUDA error: unspecified launch failure, out of memory"}`:           {false, false},
		`{"exception_type": "RuntimeError", "exception_message": "unknown error"}`:                                                 {false, false},
		`{"exception_type": 1}`: {false, false},
		`[`:                     {false, false},
	} {
		f := failureOf([]byte(text))
		require.Equal(t, want, [2]bool{outOfMemory(f), poisons(f)}, text)
	}
}
