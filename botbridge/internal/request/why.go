package request

import (
	"slices"
	"strings"

	"github.com/comfyhub/comfyhub/botbridge/internal/hubapi"
	"github.com/comfyhub/comfyhub/botbridge/internal/locale"
)

// offline is the state of an instance that is absent.
const offline = "offline"

// Why explains why a job is waiting: no instance is online, none can run it, or those that
// can are busy. stuck means that it is not just a matter of time.
func Why(texts *locale.Bundle, language string, e hubapi.Explanation) (text string, stuck bool) {
	here, able := 0, 0
	var lacking []string
	for _, i := range e.Instances {
		if i.State == offline {
			continue
		}
		here++
		if i.CanRun {
			able++
			continue
		}
		// Names of machines do not belong in a chat.
		const most = 4
		for _, thing := range i.Lacks {
			if len(lacking) < most && !slices.Contains(lacking, thing) {
				lacking = append(lacking, thing)
			}
		}
	}
	switch {
	case here == 0:
		return texts.Say(language, "why_nobody", nil), true
	case able == 0:
		text = texts.Say(language, "why_unable", locale.With{"n": here})
		if len(lacking) > 0 {
			text += "\n" + texts.Say(language, "why_lacking", locale.With{"list": strings.Join(lacking, ", ")})
		}
		return text, true
	}
	return texts.Say(language, "why_busy", locale.With{"able": able, "n": here}), false
}
