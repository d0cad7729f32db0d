package bridge

import (
	"fmt"

	"github.com/comfyhub/comfyhub/botbridge/internal/config"
	"github.com/comfyhub/comfyhub/botbridge/internal/telegram"
	"github.com/comfyhub/comfyhub/botbridge/internal/workflow"
)

// sellProblems returns problems with prices that nobody could pay.
func sellProblems(c *config.Config, commands []*workflow.Command) (list []error) {
	if c.Sells() && c.Telegram == nil {
		list = append(list, fmt.Errorf("stars: people can pay only on Telegram, which is not configured"))
	}
	for _, command := range commands {
		count := int64(1)
		if command.Takes(workflow.Count) {
			count = int64(command.Spec.MaxCount)
		}
		if command.Spec.Stars > 0 && count > 0 && command.Spec.Stars > telegram.MaxPrice/count {
			list = append(list, fmt.Errorf("command %s: stars: %d for each of %d pictures is more than the %d that Telegram takes at once",
				command.Name, command.Spec.Stars, count, telegram.MaxPrice))
		}
	}
	return list
}
