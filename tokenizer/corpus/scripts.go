package corpus

import (
	"math/rand/v2"
	"strings"
)

// sentences are ours; each says something of a cache, a road or the weather.
var sentences = []string{
	// Latin
	"The cache keeps what was read twice, and forgets the rest.",
	"Don't ask whether it's fast; we've measured it, they'll see, I'd bet.",
	"Die Straße über den Fluss führt an größeren Häusern vorbei.",
	"L'été dernier, nous n'avions déjà plus de place près de la forêt.",
	"El niño corrió hacia la montaña; ¿por qué no volvió aún?",
	"Zażółć gęślą jaźń, powiedział mistrz, i wyszedł z chałupy.",
	"İstanbul'da ılık bir akşam, ağır ağır yürüdük.",
	"Trời hôm nay đẹp quá, chúng ta đi dạo ở công viên nhé.",
	"Příliš žluťoučký kůň pil vodu u řeky.",
	"Þetta er ekki löng ferð, sagði hún við öndina.",
	// Greek, Cyrillic, Armenian, Georgian
	"Η μνήμη κρατά ό,τι διαβάστηκε δύο φορές· τα υπόλοιπα τα ξεχνά.",
	"Сегодня ветрено, но мы всё равно пойдём к реке.",
	"Ґанок їхньої хати видно здалеку, й кіт чекає.",
	"Այսօր եղանակը լավ է, և մենք գնում ենք այգի։",
	"დღეს კარგი ამინდია და პარკში მივდივართ.",
	// Hebrew, Arabic, Persian, Urdu, Syriac, Thaana
	"היום יפה בחוץ, ואנחנו הולכים לגן. שָׁלוֹם!",
	"الطقس جميل اليوم، وسنذهب إلى الحديقة بعد الظهر.",
	"امروز هوا خوب است و می\u200cرویم به باغ؛ ۱۲ نفر هستیم.",
	"آج موسم اچھا ہے، ہم باغ جائیں گے۔",
	"ܫܠܡܐ ܥܠܡܐ ܛܒܐ",
	"މިއަދު މޫސުން ރަނގަޅު",
	// the scripts of India and their neighbours
	"आज मौसम अच्छा है और हम बगीचे में जा रहे हैं।",
	"আজ আবহাওয়া ভালো, আমরা বাগানে যাচ্ছি।",
	"ਅੱਜ ਮੌਸਮ ਚੰਗਾ ਹੈ, ਅਸੀਂ ਬਾਗ਼ ਜਾ ਰਹੇ ਹਾਂ।",
	"આજે હવામાન સારું છે, અમે બગીચામાં જઈએ છીએ.",
	"ଆଜି ପାଗ ଭଲ ଅଛି, ଆମେ ବଗିଚାକୁ ଯାଉଛୁ।",
	"இன்று வானிலை நன்றாக உள்ளது, நாம் பூங்காவிற்குச் செல்கிறோம்.",
	"ఈరోజు వాతావరణం బాగుంది, మేము తోటకు వెళ్తున్నాము.",
	"ಇಂದು ಹವಾಮಾನ ಚೆನ್ನಾಗಿದೆ, ನಾವು ತೋಟಕ್ಕೆ ಹೋಗುತ್ತೇವೆ.",
	"ഇന്ന് കാലാവസ്ഥ നല്ലതാണ്, ഞങ്ങൾ പാർക്കിലേക്ക് പോകുന്നു.",
	"අද කාලගුණය හොඳයි, අපි උයනට යමු.",
	"དེ་རིང་གནམ་གཤིས་ཡག་པོ་འདུག",
	// the scripts of South-East Asia
	"วันนี้อากาศดี เราจะไปเดินเล่นที่สวนสาธารณะ",
	"ມື້ນີ້ອາກາດດີ ພວກເຮົາໄປສວນ",
	"ဒီနေ့ ရာသီဥတု ကောင်းတယ်၊ ပန်းခြံကို သွားမယ်။",
	"ថ្ងៃនេះអាកាសធាតុល្អ យើងទៅសួនច្បារ។",
	"ꦲꦏ꧀ꦱꦫꦗꦮ",
	// Ethiopic, Tifinagh, N'Ko, Cherokee, Canadian syllabics, Mongolian
	"ዛሬ አየሩ ጥሩ ነው፣ ወደ መናፈሻ እንሄዳለን።",
	"ⴰⵣⵓⵍ ⵓⵎⴰⵜⵏ, ⴰⵙⵙ ⴰ ⵉⵖⵓⴷⴰ.",
	"ߌ ߣߌ ߕߟߋ߬",
	"ᎣᏏᏲ ᎣᎦᎵᎢ",
	"ᐊᐃᓐᖓᐃ ᓄᓇᕗᑦ",
	"ᠰᠠᠶᠢᠨ ᠪᠠᠶᠢᠨ\u180eᠠ",
	// East Asia
	"今天天气很好，我们去公园散步，然后一起吃晚饭。",
	"缓存里的内容越多，回答得就越快；「真的吗？」他问。",
	"今日は天気がいいので、公園まで歩いてからコーヒーを飲みました。ﾃｽﾄ",
	"오늘은 날씨가 좋아서 공원에 갑니다. 괜찮아요!",
	"ㄅㄆㄇㄈ 注音 ꀀꀁ ꓐꓑ",
}

// alphabets are ranges of letters of which words are made: Gothic, Runic, Ogham,
// Coptic, Glagolitic, Deseret, Osage, Adlam, cuneiform, hieroglyphs, Linear B,
// Phoenician, Old Persian, Balinese, Sundanese, Tai Le, Cham, Vai, Bamum, Yi,
// Hangul, Han and its extensions, CJK radicals. They are not those of package
// unicode, which grow with the Go release.
var alphabets = [][2]rune{
	{0x10330, 0x1034a},
	{0x16a0, 0x16ea},
	{0x1681, 0x169a},
	{0x2c80, 0x2ce4},
	{0x2c00, 0x2c5f},
	{0x10400, 0x1044f},
	{0x104b0, 0x104d3},
	{0x1e900, 0x1e943},
	{0x12000, 0x12399},
	{0x13000, 0x1342f},
	{0x10000, 0x1000b},
	{0x10900, 0x10915},
	{0x103a0, 0x103c3},
	{0x1b05, 0x1b33},
	{0x1b83, 0x1ba0},
	{0x1950, 0x196d},
	{0xaa00, 0xaa28},
	{0xa500, 0xa60b},
	{0xa6a0, 0xa6e5},
	{0xa000, 0xa48c},
	{0xac00, 0xd7a3},
	{0x4e00, 0x9fff},
	{0x3400, 0x4dbf},
	{0x20000, 0x2a6df},
	{0xf900, 0xfa6d},
}

// sentence returns one sentence, a shuffle of the words of one, or made-up words.
func sentence(rng *rand.Rand) string {
	switch rng.IntN(8) {
	case 0, 1, 2:
		return sentences[rng.IntN(len(sentences))] + " "
	case 3, 4, 5, 6:
		words := strings.Split(sentences[rng.IntN(len(sentences))], " ")
		rng.Shuffle(len(words), func(i, j int) { words[i], words[j] = words[j], words[i] })
		return strings.Join(words, " ") + "\n"
	}
	alphabet := alphabets[rng.IntN(len(alphabets))]
	var b strings.Builder
	for range 1 + rng.IntN(6) {
		for range 1 + rng.IntN(9) {
			b.WriteRune(alphabet[0] + rng.Int32N(alphabet[1]-alphabet[0]+1))
		}
		b.WriteByte(' ')
	}
	return b.String()
}
