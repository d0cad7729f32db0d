import { language } from './words.js';

// The hub says in English why a job waits and what is wrong with an instance. What it often says has
// its translation here; {x} is anything, and is translated, too. What is not known stays as it is.
const known = {
  ru: [
    ['waiting for an instance to become idle', 'ждёт, пока освободится сервер'],
    ['waiting for an instance of another hub to become idle', 'ждёт, пока освободится сервер другого хаба'],
    ['no instance is connected', 'не подключён ни один сервер'],
    ['no present instance can run it: {x}', 'ни один из подключённых серверов не может его выполнить: {x}'],
    ['the operator has paused the queue', 'очередь приостановил администратор'],
    ['the operator has paused your prompts', 'ваши задания приостановил администратор'],
    ['it is paused; its owner can resume it', 'приостановлено; владелец может возобновить'],
    ["the hub's storage takes no files now; jobs wait until it does", 'хранилище хаба сейчас не принимает файлы; задания ждут'],
    ['waiting for one of your own jobs to end: no more than {x} of them run at once (tenant_limits running)', 'ждёт окончания одного из ваших заданий: одновременно выполняется не больше {x} (tenant_limits running)'],
    ['your GPU time of the last 24 hours is used up (tenant_limits gpu_seconds); it goes on in {x}', 'время GPU на сутки израсходовано (tenant_limits gpu_seconds); продолжение через {x}'],
    ['waiting for {x}: it has the models loaded, and will have finished this job sooner than an idle instance', 'ждёт {x}: модели там уже загружены, и задание закончится раньше, чем на свободном сервере'],
    ['it is being run by {x}', 'выполняется на {x}'],
    ['its models are loaded', 'его модели уже загружены'],
    ['takes less time than others before it', 'короче тех, что перед ним'],
    ['ran this client last', 'последним выполнял задание этого клиента'],
    ['it is left to prompts that need a GPU', 'оставлен для заданий, которым нужен GPU'],
    ['it runs another job', 'выполняет другое задание'],
    ['it is idle', 'свободен'],
    ['it is idle, but must load the models first; {x} has them', 'свободен, но сначала должен загрузить модели; у {x} они уже есть'],
    ['it has refused this job, or lost it', 'отказался от этого задания или потерял его'],
    ['it gets no more than single jobs: {x}', 'получает задания по одному: {x}'],
    ['it takes no jobs now: {x}', 'сейчас не принимает заданий: {x}'],
    ['it is used by others: {x}', 'занят другими: {x}'],
    ['it is not connected: {x}', 'не подключён: {x}'],
    ['it lacks {x}', 'нет нужного: {x}'],
    ['is reserved for other tenants', 'только для других пользователей'],
    ['its GPU is kept free for a job that has waited for its memory', 'GPU придержан для задания, которое ждёт его память'],
    ['its GPU has too little memory left beside the job that another instance runs there', 'на GPU мало памяти: рядом выполняется задание другого сервера'],
    ['not reached yet', 'связи ещё не было'],
    ['its agent has left', 'его агент остановлен'],
    ['its agent is gone without a word: it has crashed, or its machine or the network is down', 'агент пропал без предупреждения: упал сам, выключилась машина или нет сети'],
    ['no report from its agent for {x}', 'агент молчит уже {x}'],
    ['no answer in time', 'не ответил вовремя'],
    ['draining', 'выводится'],
    ['its agent stops', 'его агент останавливается'],
    ['it is about to restart', 'сейчас перезапустится'],
    ['its disk is full', 'диск заполнен'],
    ['prompts of others: {x}', 'чужих заданий: {x}'],
    ['attempt {x} on {x}: {x}', 'попытка {x} на {x}: {x}'],
    ['it was silent for too long and was interrupted', 'слишком долго молчало и было прервано'],
    ['it died when it got the prompt', 'сервер упал, получив задание'],
    ['it has given no sign of life for too long', 'сервер слишком долго не подавал признаков жизни'],
    ['it accepts prompts but does not start them', 'принимает задания, но не начинает их'],
    ['it lists a prompt as running but does not start it', 'показывает задание как текущее, но не начинает его'],
    ['it waited behind a prompt of somebody else', 'ждало за чужим заданием'],
    ['it was lost', 'запуск потерян'],
    ['{x} of the last {x} runs had to load {x} first, which took {x}: reserve an instance for it.', '{x} из {x} последних запусков сначала загружали {x}, это {x}: выделите сервер под эту модель.'],
    ['{x} of the last {x} runs had to load {x} first, which took {x}; {x} tenants use it: reserve an instance for it.', '{x} из {x} последних запусков сначала загружали {x}, это {x}; её пользователей: {x}. Выделите под неё сервер.'],
    ['The same was made {x} ago: open that.', 'То же самое уже сделано {x} назад: откройте его.'],
    ['{x} downloads what an instance lacks, and takes {x} instead of {x}: put its files on the instances.', '{x} скачивает то, чего нет на сервере, это {x} вместо {x}: положите файлы на серверы заранее.'],
    ['{x} of {x} is for previews that nobody has opened: leave them out.', '{x} из {x} уходит на превью, которые никто не открывал: уберите их.'],
    ['{x} steps with {x}, which is made for few: {x} would do.', 'Шагов: {x}. Модель {x} рассчитана на малое их число, хватит {x}.'],
    ['{x}, as many as the budget allows', '{x}; больше не позволяет бюджет'],
    ['{x}, as many as max allows', '{x}; больше не позволяет max'],
    ['{x}, but the last starts failed: the next one waits', '{x}; последние запуски не удались, следующий будет позже'],
    ['{x} jobs wait, with {x} of work', 'ждёт заданий: {x}, работы на {x}'],
    ['a job waits and no instance is there', 'задание ждёт, а серверов нет'],
    ["the last minutes' work keeps {x} instances busy", 'работа последних минут занимает серверов: {x}'],
    ['enough for what waits and arrives', 'хватает для всего, что ждёт и поступает'],
    ['{x} idle for {x} or longer', 'простаивает серверов: {x}, дольше {x}'],
    ['the budget is spent', 'бюджет исчерпан'],
    ['its budget of the day is spent', 'дневной бюджет исчерпан'],
    ['{x} of {x} is waiting for a service: an instance without a GPU would do.', '{x} из {x} — ожидание чужого сервиса: хватит сервера без GPU.'],
  ],
};

const patterns = Object.fromEntries(Object.entries(known).map(([name, pairs]) => [name, pairs.map(([from, to]) => [
  new RegExp(`^(?:it )?${from.replace(/^it /, '').split('{x}').map((part) => part.replace(/[.*+?^${}()|[\]\\]/g, '\\$&')).join('(.*?)')}$`, 's'), to,
])]));

// said is what the hub has said, in the language of the page.
export function said(text, depth = 0) {
  if (!text || !patterns[language] || depth > 3 || text.length > 2000) return text;
  for (const [from, to] of patterns[language]) {
    const found = from.exec(text);
    if (!found) continue;
    let n = 0;
    return to.replace(/\{x\}/g, () => said(found[++n], depth + 1));
  }
  return text;
}
