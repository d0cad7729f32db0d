package hints

import "strings"

// Phase is a part of the work on a picture.
type Phase string

// The phases.
const (
	Downloading Phase = "downloading" // fetching what an instance lacks, then reading it
	Loading     Phase = "loading"     // reading models from the disk
	Encoding    Phase = "encoding"    // turning texts and pictures into what models read
	Sampling    Phase = "sampling"    // the steps of a sampler
	Decoding    Phase = "decoding"    // turning latents into pictures
	Upscaling   Phase = "upscaling"   // making pictures larger
	Saving      Phase = "saving"      // writing files
	Service     Phase = "service"     // waiting for somebody else's service
	Other       Phase = "other"
)

// Kind is what an instance's /object_info says about a node class.
type Kind struct {
	// Category is where the menu of the web UI has it, such as "loaders" or "api node/image/BFL".
	Category string
	// API says that it calls a service, and Output that it writes results.
	API, Output bool
}

// PhaseOf returns the phase in which nodes of a class work.
func PhaseOf(class string, k Kind) Phase {
	class, category := strings.ToLower(class), strings.ToLower(k.Category)
	has := func(words ...string) bool {
		for _, word := range words {
			if strings.Contains(class, word) || strings.Contains(category, word) {
				return true
			}
		}
		return false
	}
	switch {
	case k.API || strings.HasPrefix(category, "api node"):
		return Service
	case k.Output:
		return Saving
	case strings.Contains(class, "download"):
		return Downloading
	case has("upscale"):
		return Upscaling
	case strings.Contains(class, "decode"):
		return Decoding
	case has("encode", "conditioning"):
		return Encoding
	case has("sampler", "sampling"):
		return Sampling
	case has("loader"):
		return Loading
	}
	return Other
}
