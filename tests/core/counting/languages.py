"""The first articles of the Universal Declaration of Human Rights, and other texts that estimates find hard."""

from __future__ import annotations

__all__ = ["LANGUAGES", "WHITESPACE"]

LANGUAGES = {
    "Zulu": (
        "Bonke abantu bazalwa bekhululekile belingana ngesithunzi nangamalungelo. Bahlanganiswe "
        "wumcabango nangunembeza futhi kufanele baphathane ngomoya wobunye. Wonke umuntu "
        "unelungelo lokuphila, inkululeko nokuvikeleka komzimba wakhe."
    ),
    "Xhosa": (
        "Bonke abantu bazalwa bekhululekile belingana ngesidima nangokweemfanelo. Bonke abantu "
        "banesiphiwo sesazela nesizathu sokwenza isenzo ongathanda ukuba senziwe kumzalwane "
        "wakho. Wonke umntu unelungelo lobomi, inkululeko nokhuseleko lwakhe."
    ),
    "Somali": (
        "Aadanaha dhammaantiis wuxuu dhashaa isagoo xor ah kana siman xagga sharafta iyo "
        "xuquuqda. Waxaa Alle siiyay aqoon iyo wacyi, waana in qof la arkaa qofka kale ula "
        "dhaqmaa si walaaltinimo ah. Qof kastaa wuxuu xaq u leeyahay nolol, xorriyad iyo "
        "nabadgelyo."
    ),
    "Swahili": (
        "Watu wote wamezaliwa huru, hadhi na haki zao ni sawa. Wote wamejaliwa akili na dhamiri, "
        "hivyo yapasa watendeane kindugu. Kila mtu ana haki ya kuishi, haki ya kuwa huru na haki "
        "ya kulindwa nafsi yake."
    ),
    "Welsh": (
        "Genir pawb yn rhydd ac yn gydradd â'i gilydd mewn urddas a hawliau. Fe'u cynysgaeddir â "
        "rheswm a chydwybod, a dylai pawb ymddwyn y naill at y llall mewn ysbryd cymodlon. Y mae "
        "gan bawb hawl i fyw, i ryddid ac i ddiogelwch ei berson."
    ),
    "Polish": (
        "Wszyscy ludzie rodzą się wolni i równi pod względem swej godności i swych praw. Są oni "
        "obdarzeni rozumem i sumieniem i powinni postępować wobec innych w duchu braterstwa. "
        "Każdy człowiek ma prawo do życia, wolności i bezpieczeństwa swej osoby."
    ),
    "Turkish": (
        "Bütün insanlar hür, haysiyet ve haklar bakımından eşit doğarlar. Akıl ve vicdana "
        "sahiptirler ve birbirlerine karşı kardeşlik zihniyeti ile hareket etmelidirler. Yaşamak, "
        "hürriyet ve kişi emniyeti her ferdin hakkıdır."
    ),
    "Greek": (
        "Όλοι οι άνθρωποι γεννιούνται ελεύθεροι και ίσοι στην αξιοπρέπεια και τα δικαιώματα. "
        "Είναι προικισμένοι με λογική και συνείδηση, και οφείλουν να συμπεριφέρονται μεταξύ τους "
        "με πνεύμα αδελφοσύνης."
    ),
    "Armenian": (
        "Բոլոր մարդիկ ծնվում են ազատ ու հավասար իրենց արժանապատվությամբ ու իրավունքներով։ Նրանք "
        "ունեն բանականություն ու խիղճ և միմյանց պետք է եղբայրաբար վերաբերվեն։"
    ),
    "Georgian": (
        "ყველა ადამიანი იბადება თავისუფალი და თანასწორი თავისი ღირსებითა და უფლებებით. მათ "
        "მინიჭებული აქვთ გონება და სინდისი და ერთმანეთის მიმართ უნდა იქცეოდნენ ძმობის "
        "სულისკვეთებით."
    ),
    "Amharic": (
        "የሰው ልጅ ሁሉ ሲወለድ ነጻና በክብርና በመብትም እኩልነት ያለው ነው። የተፈጥሮ ማስተዋልና ሕሊና ስላለው አንዱ ሌላውን በወንድማማችነት "
        "መንፈስ መመልከት ይገባዋል።"
    ),
    "Thai": (
        "มนุษย์ทั้งหลายเกิดมามีอิสระและเสมอภาคกันในเกียรติศักดิ์และสิทธิ ต่างมีเหตุผลและมโนธรรม "
        "และควรปฏิบัติต่อกันด้วยเจตนารมณ์แห่งภราดรภาพ"
    ),
    "Hebrew": (
        "כל בני האדם נולדו בני חורין ושווים בערכם ובזכויותיהם. כולם חוננו בתבונה ובמצפון, לפיכך "
        "חובה עליהם לנהוג איש ברעהו ברוח של אחווה."
    ),
    "vocalized Hebrew": ("בְּרֵאשִׁית בָּרָא אֱלֹהִים אֵת הַשָּׁמַיִם וְאֵת הָאָרֶץ׃ וְהָאָרֶץ הָיְתָה תֹהוּ וָבֹהוּ וְחֹשֶׁךְ עַל־פְּנֵי תְהוֹם"),
    "vocalized Arabic": (
        "يُولَدُ جَمِيعُ النَّاسِ أَحْرَارًا مُتَسَاوِينَ فِي الْكَرَامَةِ وَالْحُقُوقِ. وَقَدْ "
        "وُهِبُوا عَقْلًا وَضَمِيرًا وَعَلَيْهِمْ أَنْ يُعَامِلَ بَعْضُهُمْ بَعْضًا بِرُوحِ "
        "الْإِخَاءِ."
    ),
    "Vietnamese": (
        "Tất cả mọi người sinh ra đều được tự do và bình đẳng về nhân phẩm và quyền. Mọi con "
        "người đều được tạo hoá ban cho lý trí và lương tâm và cần phải đối xử với nhau trong "
        "tình bằng hữu."
    ),
    "Finnish": (
        "Kaikki ihmiset syntyvät vapaina ja tasavertaisina arvoltaan ja oikeuksiltaan. Heille on "
        "annettu järki ja omatunto, ja heidän on toimittava toisiaan kohtaan veljeyden hengessä."
    ),
    "drug names": (
        "pembrolizumab, nivolumab, trastuzumab deruxtecan, empagliflozin, semaglutide, apixaban, "
        "rivaroxaban, levothyroxine, hydrochlorothiazide, atorvastatin, clopidogrel, "
        "esomeprazole, tofacitinib, ustekinumab, secukinumab"
    ),
    "chat slang": (
        "omg lol wyd rn?? idk tbh ngl thats kinda sus fr fr, brb gtg ttyl xoxo. smh u coulda told "
        "me b4 lmao, hmu l8r k thx bye"
    ),
    "Javanese": (
        "Kabeh uwong kalairake kanthi mardika lan darbe martabat lan hak-hak kang padha. Kabeh "
        "pinaringan akal lan kalbu sarta kaajab pasrawungan anggone memitran siji lan sijine."
    ),
    "Hungarian": (
        "Minden emberi lény szabadon születik és egyenlő méltósága és joga van. Az emberek, "
        "ésszel és lelkiismerettel bírván, egymással szemben testvéri szellemben kell hogy "
        "viseltessenek."
    ),
    "Yoruba": (
        "Gbogbo ènìyàn ni a bí ní òmìnira; iyì àti ẹ̀tọ́ kọ̀ọ̀kan sì dọ́gba. Wọ́n ní ẹ̀bùn ti "
        "làákàyè àti ti ẹ̀rí-ọkàn, ó sì yẹ kí wọn ó máa hùwà sí ara wọn gẹ́gẹ́ bí ọmọ ìyá."
    ),
    "Tamil": (
        "மனிதப் பிறிவியினர் சகலரும் சுதந்திரமாகவே பிறக்கின்றனர்; அவர்கள் மதிப்பிலும், "
        "உரிமைகளிலும் சமமானவர்கள், அவர்கள் நியாயத்தையும் மனச்சாட்சியையும் இயற்பண்பாகப் "
        "பெற்றவர்கள்."
    ),
}
WHITESPACE = {
    "blank lines": "a\n\n\n\n\nb\n\n\n\n\n\n\n\nc\n \n \n \nd\n\t\n\t\n\te\r\n\r\n\r\nf",
    "indented": "\n".join("    " * (i % 7) + "x" for i in range(30)),
    "tabs": "\n".join("\t" * (i % 7) + "x\ty" for i in range(30)),
    "spaces": "a" + " " * 37 + "b" + " " * 5 + "c" + " " * 100 + "d",
}
